// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.UncountedMemory;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicInteger;

/// The staging buffers of data connections: one pair per connection, at most as many pairs as
/// connections are allowed.
///
/// They do not count against `-XX:MaxDirectMemorySize`, since the KV cache may use all of it and
/// connections must still be possible. Returned pairs are reused for the next connection: freeing
/// them is up to the garbage collector, which connects and disconnects in quick succession would
/// outrun.
///
/// Threading: any thread; a pair belongs to one connection.
public final class Staging {
    /// Bytes of one buffer.
    static final int BYTES = 64 << 10;

    private final int most;
    private final AtomicInteger made = new AtomicInteger();
    private final ConcurrentLinkedDeque<Pair> spare = new ConcurrentLinkedDeque<>();

    /// Buffers of one connection, little-endian.
    ///
    /// @param calls for the arguments of system calls in both directions
    public record Pair(ByteBuffer in, ByteBuffer out, MemorySegment calls) {
        /// A pair outside of any bound, for connections that this process makes.
        public static Pair allocate() {
            return new Pair(buffer(), buffer(), UncountedMemory.allocate(2 * Gathered.CALL_BYTES));
        }

        private static ByteBuffer buffer() {
            return UncountedMemory.allocate(BYTES).asByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    /// @param most pairs that exist at a time
    Staging(int most) {
        this.most = most;
    }

    /// @throws KvFerryException [ErrorCode#NO_MEMORY] when all pairs are in use
    Pair take() {
        Pair known = spare.pollFirst();
        if (known != null) {
            known.in().clear();
            known.out().clear();
            return known;
        }
        if (made.incrementAndGet() > most) {
            made.decrementAndGet();
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, "all " + most + " pairs of staging buffers are in use");
        }
        boolean done = false;
        try {
            Pair pair = Pair.allocate();
            done = true;
            return pair;
        } finally {
            if (!done) {
                made.decrementAndGet();
            }
        }
    }

    /// Called by the thread that used the pair, which must not be read or written afterwards.
    void give(Pair pair) {
        boolean kept = false;
        try {
            spare.addFirst(pair);
            kept = true;
        } finally {
            if (!kept) { // after an OutOfMemoryError the collector frees the pair
                made.decrementAndGet();
            }
        }
    }
}
