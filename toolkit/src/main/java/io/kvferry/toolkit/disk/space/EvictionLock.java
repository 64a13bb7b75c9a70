// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Lets one thread at a time, across all processes sharing a folder, evict. Reports whether another
/// process has evicted since this one last scanned the folder: its catalog is then stale, and
/// without a new scan it would free the same space again.
///
/// The lock is an OS file lock, which ends with the process that holds it; the file contains the
/// number of evictions. If the OS gives no file lock, the lock works only between the threads of
/// this process.
///
/// Threading: any thread.
public final class EvictionLock implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(EvictionLock.class);
    private static final long RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    private final FileCalls calls;
    private final MemorySegment count = Arena.ofAuto().allocate(Long.BYTES, Long.BYTES);
    private final Path file;
    private boolean taken;
    private boolean closed;
    private int handle;
    private boolean known;

    /// Whether the lock that a thread has is one between processes, too.
    private boolean between;

    private boolean warned;
    private long own;
    private volatile long seen = -1;

    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the file cannot be opened
    public EvictionLock(FileCalls calls, Path file) {
        this.calls = calls;
        this.file = file;
        this.handle = open();
        if (handle < 0) {
            throw new KvFerryException(
                    ErrorCode.STORAGE_IO, "cannot open " + file + ": " + Errno.text(-handle));
        }
    }

    private int open() {
        try (Arena arena = Arena.ofConfined()) {
            return calls.openLockFile(PathText.of(arena, file));
        }
    }

    /// Opens the file that has the name now if the one that is open was deleted. If there is none,
    /// keeps the old one, which new processes cannot find. Waits for the lock as [#lock] does.
    public void reopen(long deadlineNanos) {
        if (!take(deadlineNanos)) {
            return;
        }
        try {
            int other = open();
            if (other >= 0) {
                calls.close(handle);
                handle = other;
            }
        } finally {
            give();
        }
    }

    /// A monitor, unlike a contended lock object, makes no garbage.
    private synchronized boolean take(long deadlineNanos) {
        boolean interrupted = false;
        try {
            while (taken || closed) {
                long left = deadlineNanos - System.nanoTime();
                if (left <= 0 || closed) {
                    return false;
                }
                interrupted |= waitInterrupted(left);
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        taken = true;
        known = false;
        return true;
    }

    private boolean waitInterrupted(long nanos) {
        try {
            TimeUnit.NANOSECONDS.timedWait(this, nanos);
            return false;
        } catch (InterruptedException _) {
            return true;
        }
    }

    private synchronized void give() {
        taken = false;
        if (closed) {
            calls.close(handle);
        }
        notify();
    }

    /// Waits for the lock, an interrupted thread too; false when `deadlineNanos` came first, or
    /// [#close].
    public boolean lock(long deadlineNanos) {
        if (!take(deadlineNanos)) {
            return false;
        }
        boolean locked = false;
        try {
            locked = lockBetweenProcesses(deadlineNanos);
        } finally { // also when the call throws
            if (!locked) {
                give();
            }
        }
        return locked;
    }

    private boolean lockBetweenProcesses(long deadlineNanos) {
        boolean interrupted = false;
        try {
            while (true) {
                int rc = calls.tryLock(handle);
                between = rc == 0;
                if (rc != -Errno.EAGAIN && rc != -Errno.EINTR) {
                    if (rc != 0) {
                        warnOnce(rc);
                    }
                    return true;
                }
                if (deadlineNanos - System.nanoTime() <= 0) {
                    return false;
                }
                interrupted |= Thread.interrupted(); // else it would not park
                LockSupport.parkNanos(this, RETRY_NANOS);
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /// A file system may have no locks, or none for a while; tried again each time.
    private void warnOnce(int rc) {
        if (!warned) {
            warned = true;
            LOG.warn(
                    "this file system gives no lock ({}): processes that share the folder may evict at the"
                            + " same time",
                    Errno.text(-rc));
        }
    }

    /// Whether another process evicted since this one last [#look]ed at the folder. Under the lock.
    public boolean othersEvicted() {
        return others() != seen;
    }

    /// Looks at the folder and notes that what others evicted before is known. Under the lock.
    public void look(Runnable scan) {
        long before = others();
        scan.run();
        seen = before;
    }

    /// As [#look(Runnable)], without holding the lock.
    ///
    /// @param deadlineNanos how long to wait for a thread of this process that holds the lock; then
    ///   the folder is scanned anyway
    public void look(Runnable scan, long deadlineNanos) {
        long before = seen;
        if (take(deadlineNanos)) {
            try {
                before = others();
            } finally {
                give();
            }
        }
        scan.run();
        seen = before;
    }

    /// Evictions by other processes.
    private long others() {
        return read() - own;
    }

    /// Releases the lock.
    ///
    /// @param evicted whether this process evicted, and others must look anew
    public void unlock(boolean evicted) {
        try {
            if (evicted) {
                count.set(ValueLayout.JAVA_LONG, 0, read() + 1);
                if (calls.write(handle, count, 0, Long.BYTES, 0) == Long.BYTES) {
                    own++;
                } // else, as on a full disk, others learn of it from their next scan
            }
        } finally {
            try {
                if (between) {
                    calls.unlock(handle);
                }
            } finally {
                give();
            }
        }
    }

    /// Evictions by all processes; asks the file once per turn of the lock.
    private long read() {
        if (!known) {
            count.set(ValueLayout.JAVA_LONG, 0, 0);
            calls.read(handle, count, 0, Long.BYTES, 0);
            known = true;
        }
        return count.get(ValueLayout.JAVA_LONG, 0);
    }

    /// Makes [#lock] fail from now on. A thread that holds the lock, for example while a deletion
    /// hangs, keeps the handle until it unlocks; otherwise it could write its count to another file
    /// that got the same handle. Other processes get the lock at once. Idempotent.
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (taken) {
            calls.unlock(handle);
        } else {
            calls.close(handle);
        }
        notifyAll();
    }
}
