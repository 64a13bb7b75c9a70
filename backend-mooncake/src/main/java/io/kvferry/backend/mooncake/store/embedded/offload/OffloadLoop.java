// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.disk.Errno;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

/// Writes what waits in the queue to disk, bucket by bucket, and deletes buckets where they have to
/// make room.
///
/// Threading: one thread takes the steps, that of [#start] or the caller of [#step].
final class OffloadLoop implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OffloadLoop.class);

    /// How long a store that is closed goes on writing.
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(10);

    final DiskTier disk;
    final OffloadQueue queue;
    final DiskCopies copies;
    final DiskEvictor evictor;
    private final StoreParts parts;
    private final OffloadPause pause;
    private @Nullable Thread thread;

    OffloadLoop(StoreParts parts, DiskTier disk) {
        this.parts = parts;
        this.disk = disk;
        this.pause = new OffloadPause(disk, parts.time());
        this.queue = new OffloadQueue(disk, pause, parts.config());
        this.copies = new DiskCopies(parts, disk);
        this.evictor = new DiskEvictor(parts, disk, copies, pause);
    }

    void start(ThreadFactory threads) {
        Thread started = threads.newThread(new LastingLoop(this::work));
        started.setName("kvferry-store-offload");
        started.start();
        thread = started; // only now: close does not wait for a thread that was refused
    }

    private void work() {
        while (!queue.isStopped()) {
            try {
                if (!step(false)) {
                    queue.await();
                }
            } catch (InterruptedException _) {
                return;
            } catch (RuntimeException | Error e) {
                report(e);
            }
        }
        long end = System.nanoTime() + CLOSE_NANOS;
        try {
            while (System.nanoTime() - end < 0 && !pause.isFailing() && step(true)) {
                // what waits is written, so that the next life of the store finds it
            }
        } catch (RuntimeException | Error e) { // only once: the store is closing
            report(e);
        } finally {
            letGoOfEvicted();
        }
    }

    private static void report(Throwable failure) {
        try {
            LOG.error("offloading failed; it is retried", failure);
        } catch (RuntimeException | Error _) {
            // Logging failed; the next failure is logged again.
        }
    }

    /// Writes one bucket, if there is enough for one, or something has waited long enough.
    ///
    /// @param flush whether not to wait for more
    /// @return whether there was something to write
    boolean step(boolean flush) {
        evictor.deleteEmpty();
        if (!pause.isOn() && !disk.settle()) {
            pause.begin("the disk does not answer");
        }
        if (pause.isOn()) {
            letGoOfEvicted();
            return false;
        }
        evictor.makeHeap();
        try (var batch = new OffloadBatch(parts, disk, queue)) {
            if (!batch.fill(flush)) {
                return false;
            }
            if (!batch.isEmpty()) {
                write(batch);
            }
            return true;
        } finally {
            copies.writeEnded();
        }
    }

    private void write(OffloadBatch batch) {
        if (!evictor.makeRoom(batch.fileBytes())) {
            if (!pause.isOn()) {
                pause.begin("it is full");
            }
            return;
        }
        var written = new ArrayList<@Nullable DiskObject>();
        int rc = batch.write(written);
        if (rc != 0) {
            if (Errno.isFull(-rc)) { // others use the disk as well
                evictor.evictOne();
            }
            pause.begin(DiskTier.text(rc));
            return;
        }
        pause.end();
        batch.attach(written);
    }

    /// Those whose eviction waits for the disk stay in memory.
    private void letGoOfEvicted() {
        for (var object = queue.pollEvicted(); object != null; object = queue.pollEvicted()) {
            OffloadBatch.letGo(parts.objects(), object);
        }
    }

    void addGauges(Map<String, Long> gauges) {
        gauges.put("kvferry_disk_offload_paused", pause.isFailing() ? 1L : 0L);
        queue.addGauges(gauges);
    }

    /// Writes what waits, for a while, and ends; the tier stays open.
    @Override
    public void close() {
        queue.stop();
        Thread last = thread;
        if (last == null) {
            letGoOfEvicted();
            return;
        }
        try {
            last.join(TimeUnit.NANOSECONDS.toMillis(2 * CLOSE_NANOS));
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
