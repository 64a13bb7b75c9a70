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

/// The staging buffers of data connections, one pair each, at most as many pairs as connections are
/// allowed.
///
/// They do not count against `-XX:MaxDirectMemorySize`: the KV cache may take all of that, and
/// connections must be possible all the same. Pairs that are given back serve the next connection,
/// because freeing them is the collector's business, which strangers who connect and leave do not
/// wait for.
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

    /// Only by the thread that used the pair: nobody may read or write it any more.
    void give(Pair pair) {
        boolean kept = false;
        try {
            spare.addFirst(pair);
            kept = true;
        } finally {
            if (!kept) { // for lack of memory; the collector frees it
                made.decrementAndGet();
            }
        }
    }
}
