// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.function.IntUnaryOperator;

/// Identifies the prompt of a transfer, so that blocks are not used for another prompt even if two
/// prompts have the same transfer id.
///
/// @param tokens number of tokens
/// @param digest over the token ids; equal for equal prompts in every process
public record PromptMark(int tokens, long digest) {
    public static PromptMark of(int tokens, IntUnaryOperator token) {
        long digest = tokens;
        for (int i = 0; i < tokens; i++) {
            digest = Long.rotateLeft(digest ^ token.applyAsInt(i), 23) * 0x9e3779b97f4a7c15L;
        }
        return new PromptMark(tokens, digest ^ digest >>> 32);
    }

    public void write(WireWriter out) {
        out.i32(tokens).i64(digest);
    }

    public static PromptMark read(WireReader in) {
        return new PromptMark(in.i32(), in.i64());
    }
}
