// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.toolkit.disk.NativeCrc;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// CRC32C of the objects of a batch. Large batches are summed by several threads: while a batch is
/// summed the processors have nothing else to do with it. The calling one takes part, so that all
/// are summed even if no other ever comes.
///
/// Threading: [#of] on any thread; what is summed must stay alive until it returns.
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
    /// @param bytes of each key from there on that are summed; none where it is not positive
    /// @return a sum for each of them
    static int[] of(StoreBatch batch, int from, long[] bytes) {
        var all = new BatchSums(batch, from, bytes);
        all.run();
        return all.sums;
    }

    private void run() {
        for (int i = 1; i < threads(); i++) {
            try {
                var _ = Thread.ofVirtual().name("kvferry-store-sum").start(this::work);
            } catch (OutOfMemoryError e) {
                LOG.debug("no thread to sum with: {}", e.toString());
                break;
            }
        }
        work();
        while (summed.get() < bytes.length) { // the others are at their last ones
            LockSupport.parkNanos(LOOK_NANOS);
        }
    }

    private int threads() {
        long total = 0;
        int count = 0;
        for (long each : bytes) {
            total += Math.max(0, each);
            count += each > 0 ? 1 : 0;
        }
        int most = Math.min(MOST_THREADS, Runtime.getRuntime().availableProcessors());
        return total < SHARED_FROM ? 1 : Math.min(most, count);
    }

    /// One that comes late finds nothing to do, and touches nothing.
    private void work() {
        var crc = new NativeCrc();
        for (int i = next.getAndIncrement(); i < bytes.length; i = next.getAndIncrement()) {
            if (bytes[i] > 0) {
                sums[i] = sum(crc, from + i, bytes[i]);
            }
            summed.getAndIncrement();
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
