// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// One prompt to read or write; a list of them is the plan of a step.
///
/// @param tokens tokens in the folder
/// @param first position of the first of `blocks` in the request's table
@SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
record ExampleMove(
        TransferId id,
        boolean load,
        boolean sync,
        String digest,
        int tokens,
        int first,
        int[] blocks) {
    private static final int VERSION = 2;

    static Payload encode(List<ExampleMove> moves) {
        if (moves.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter();
        out.i32(moves.size());
        for (ExampleMove move : moves) {
            move.id.write(out);
            out.bool(move.load)
                    .bool(move.sync)
                    .string(move.digest)
                    .i32(move.tokens)
                    .i32(move.first)
                    .ints(move.blocks);
        }
        return out.toPayload(VERSION);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] on another version, [ErrorCode#PROTOCOL]
    ///   on damage
    static List<ExampleMove> decode(Payload payload) {
        var moves = new ArrayList<ExampleMove>();
        if (payload.isEmpty()) {
            return moves;
        }
        if (payload.version() != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "plan of version " + payload.version() + ", this worker reads " + VERSION);
        }
        WireReader in = payload.reader();
        for (int n = in.count(32); n > 0; n--) {
            moves.add(
                    new ExampleMove(
                            TransferId.read(in),
                            in.bool(),
                            in.bool(),
                            in.string(),
                            in.i32(),
                            in.i32(),
                            in.ints()));
        }
        in.end();
        return moves;
    }
}
