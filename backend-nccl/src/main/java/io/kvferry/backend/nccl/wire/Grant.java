// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.security.SecureRandom;

/// The right to fill one window of a receiver, once. Every holder may use it, so it is sent only
/// over the side channel and to one peer.
public record Grant(long high, long low) {
    private static final SecureRandom RANDOM = new SecureRandom();

    /// Draws an unguessable grant.
    public static Grant draw() {
        return new Grant(RANDOM.nextLong(), RANDOM.nextLong());
    }

    void write(WireWriter out) {
        out.i64(high).i64(low);
    }

    static Grant read(WireReader in) {
        return new Grant(in.i64(), in.i64());
    }

    /// Without the right.
    @Override
    public String toString() {
        return "Grant";
    }
}
