// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.toolkit.disk.NativeCrc;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// CRC32C of the objects of a batch. Large batches are summed by several threads, which begin at
/// once, while the bytes move for instance. The calling one takes part at the end, so that all are
/// summed even if no other ever comes.
///
/// Threading: [#begin] on any thread, the rest on the same. What is summed must stay alive and
/// unchanged until [#await] returns.
final class BatchSums {
    private static final Logger LOG = LoggerFactory.getLogger(BatchSums.class);

    /// Below this a second thread costs more than it gains.
    private static final long SHARED_FROM = 4 << 20;

    private static final int MOST_THREADS = 4;
    private static final long PIECE = 64 << 10;
    private static final long LOOK_NANOS = TimeUnit.MICROSECONDS.toNanos(20);

    private final StoreBatch batch;
    private final int from;
    private final long[] bytes;
    private final int[] sums;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger summed = new AtomicInteger();

    private BatchSums(StoreBatch batch, int from, long[] bytes) {
        this.batch = batch;
        this.from = from;
        this.bytes = bytes;
        this.sums = new int[bytes.length];
    }

    /// @param from the first key
    /// @param bytes of each key from there on that are summed; none where it is not positive. It
    ///   may become 0 until [#await]: that key need not be summed any more
    static BatchSums begin(StoreBatch batch, int from, long[] bytes) {
        var all = new BatchSums(batch, from, bytes);
        all.begin();
        return all;
    }

    private void begin() {
        for (int i = helpers(); i > 0; i--) {
            try {
                var _ = Thread.ofVirtual().name("kvferry-store-sum").start(this::work);
            } catch (OutOfMemoryError e) {
                LOG.debug("no thread to sum with: {}", e.toString());
                break;
            }
        }
    }

    /// @return a sum for each key
    int[] await() {
        work();
        while (summed.get() < bytes.length) { // the others are at their last ones
            LockSupport.parkNanos(LOOK_NANOS);
        }
        return sums;
    }

    /// Sums no more, and returns when no thread touches the batch any more.
    void cancel() {
        int begun = Math.min(next.getAndSet(bytes.length), bytes.length);
        while (summed.get() < begun) {
            LockSupport.parkNanos(LOOK_NANOS);
        }
    }

    /// Threads besides the calling one.
    private int helpers() {
        long total = 0;
        int count = 0;
        for (long each : bytes) {
            total += Math.max(0, each);
            count += each > 0 ? 1 : 0;
        }
        int most = Math.min(MOST_THREADS, Runtime.getRuntime().availableProcessors()) - 1;
        return total < SHARED_FROM ? 0 : Math.min(most, count);
    }

    /// A task that starts after all sums are done returns without touching the memory.
    private void work() {
        var crc = new NativeCrc();
        for (int i = next.getAndIncrement(); i < bytes.length; i = next.getAndIncrement()) {
            try {
                long wanted = bytes[i];
                if (wanted > 0) {
                    sums[i] = sum(crc, from + i, wanted);
                }
            } finally {
                summed.getAndIncrement();
            }
        }
    }

    private int sum(NativeCrc crc, int key, long most) {
        crc.reset();
        long left = most;
        for (int b = batch.first(key); b < batch.end(key) && left > 0; b++) {
            long length = Math.min(left, batch.length(b));
            long address = batch.memory(b).address() + batch.offset(b);
            for (long at = 0; at < length; at += PIECE) {
                crc.update(address + at, Math.min(PIECE, length - at));
            }
            left -= length;
        }
        return crc.value();
    }
}
