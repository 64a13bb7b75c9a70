// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/// Background work: evicts between the watermarks, scans the folder, deletes what dead writers left
/// behind.
final class Janitor implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(Janitor.class);

    /// Share of the quota after whose writing the folder is scanned: others may write as much.
    private static final int SCAN_SHARE = 32;

    /// Least time between two scans that were asked for.
    private static final long LEAST_SCAN_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /// Longest pause after failures.
    private static final long MOST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final StoreCore core;
    private final FolderScan scan;
    private final long scanAfterBytes;
    private long lastScan;
    private long lastLook;
    private boolean failed;
    private long pause = LEAST_SCAN_NANOS;
    private long writtenSinceScan;
    private boolean evictionWanted;

    /// A scan if others have the folder open.
    private boolean lookWanted;

    /// A scan, whether or not others have the folder open.
    private boolean scanWanted;

    private boolean stopped;

    Janitor(StoreCore core, FolderScan scan) {
        this.core = core;
        this.scan = scan;
        this.scanAfterBytes = Math.max(1, core.config().space().quotaBytes() / SCAN_SHARE);
        this.evictionWanted = core.catalog().aboveHighWatermark();
    }

    /// Ends only with [#stop], because nothing else evicts or scans in the background.
    @Override
    public void run() {
        lastScan = System.nanoTime();
        lastLook = lastScan;
        while (true) {
            Work work = Work.NOTHING;
            try {
                work = await();
                if (work == Work.STOP) {
                    return;
                }
                turn(work);
                pause = LEAST_SCAN_NANOS;
            } catch (InterruptedException _) {
                continue; // a listener left the flag, which is cleared by now
            } catch (RuntimeException | Error e) { // tried again at the next turn
                LoopReport.WARN.log(
                        LOG,
                        "block store {} could not be scanned or evicted from; tried again later",
                        core.folder().folder(),
                        e);
                again(work);
            }
        }
    }

    /// Retries the failed work after a pause, which doubles up to a limit.
    private synchronized void again(Work work) {
        failed = true;
        pause = Math.min(2 * pause, MOST_PAUSE_NANOS);
        scanWanted |= work == Work.SCAN || work == Work.LOOK;
    }

    private enum Work {
        EVICT,
        SCAN,
        /// A scan where others use the folder.
        LOOK,
        NOTHING,
        STOP
    }

    /// Waits for the next thing to do.
    private synchronized Work await() throws InterruptedException {
        if (failed && !stopped) {
            failed = false;
            TimeUnit.NANOSECONDS.timedWait(this, pause);
        }
        long interval = core.config().times().scanInterval().toNanos();
        while (true) {
            long now = System.nanoTime();
            if (stopped) {
                return Work.STOP;
            }
            if (evictionWanted) {
                evictionWanted = false;
                return Work.EVICT;
            }
            long scanDue = interval - (now - lastScan);
            boolean wanted = scanWanted || lookWanted;
            long lookDue = wanted ? LEAST_SCAN_NANOS - (now - lastLook) : scanDue;
            if (scanDue <= 0 || lookDue <= 0) {
                Work work = scanDue <= 0 || scanWanted ? Work.SCAN : Work.LOOK;
                scanWanted = false;
                lookWanted = false;
                writtenSinceScan = 0;
                return work;
            }
            TimeUnit.NANOSECONDS.timedWait(this, Math.min(scanDue, lookDue));
        }
    }

    private void turn(Work due) {
        Work work = due;
        if (work == Work.LOOK) {
            lastLook = System.nanoTime();
            // The catalog knows what this process wrote; a scan costs time and garbage.
            work = others() ? Work.SCAN : Work.NOTHING;
        }
        if (work == Work.SCAN) {
            lastScan = System.nanoTime();
            lastLook = lastScan;
            core.reopenLocks(System.nanoTime() + LEAST_SCAN_NANOS);
            core.look(System.nanoTime() + LEAST_SCAN_NANOS);
            scan.reapTemps();
        }
        if (work == Work.EVICT || core.catalog().aboveHighWatermark()) {
            core.evictor().evictToLowWatermark();
        }
    }

    private boolean others() {
        try {
            return core.users().others();
        } catch (RuntimeException | Error e) { // as if there were some
            LoopReport.WARN.log(
                    LOG, "block store {} may have other users", core.folder().folder(), e);
            return true;
        }
    }

    /// A block was written; cheap, from any thread.
    void wrote(long bytes) {
        boolean above = core.catalog().aboveHighWatermark();
        synchronized (this) {
            writtenSinceScan += bytes;
            if (above && !evictionWanted) {
                evictionWanted = true;
                notifyAll();
            }
            if (writtenSinceScan > scanAfterBytes && !lookWanted) {
                lookWanted = true;
                notifyAll();
            }
        }
    }

    /// Requests a scan soon, because the catalog differs from the folder, for example after another
    /// process has evicted.
    synchronized void wantScan() {
        if (!scanWanted) {
            scanWanted = true;
            notifyAll();
        }
    }

    synchronized void stop() {
        stopped = true;
        notifyAll();
    }

    /// How long a stop may take at most, beside a scan in progress.
    static Duration patience() {
        return Duration.ofSeconds(5);
    }
}
