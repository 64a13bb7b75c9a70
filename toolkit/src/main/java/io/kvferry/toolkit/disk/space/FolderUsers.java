// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Detects whether other processes use a shared folder. Each holds a shared lock on one file while
/// it has the folder open; a process that gets the exclusive lock is alone. Two that ask at the
/// same moment may both get `true` once.
///
/// Threading: any thread.
public final class FolderUsers implements AutoCloseable {
    private static final int TRIES = 100;
    private static final long PAUSE_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private final FileCalls calls;
    private final Path file;
    private int handle = -1;

    /// Whether a thread uses the handle or makes another; the monitor is not held meanwhile,
    /// because the file system may hang.
    private boolean taken;

    private boolean closed;

    /// The last answer.
    private volatile boolean others = true;

    /// Where the file cannot be opened or locked, others are taken to be there.
    public FolderUsers(FileCalls calls, Path file) {
        this.calls = calls;
        this.file = file;
        reopen(System.nanoTime());
    }

    /// Goes on with the file that has the name now.
    ///
    /// @param deadlineNanos for another thread that does the same or asks; after it, or after
    ///   [#close], nothing happens
    public void reopen(long deadlineNanos) {
        if (!take(deadlineNanos)) {
            return;
        }
        try {
            int other = open();
            closeHandle(); // first: without system calls two locks of one file exclude each other
            handle = other;
            share(other);
        } finally {
            give();
        }
    }

    private int open() {
        try (Arena arena = Arena.ofConfined()) {
            return calls.openLockFile(PathText.of(arena, file));
        }
    }

    private synchronized boolean take(long deadlineNanos) {
        try {
            while (taken && !closed) {
                long left = deadlineNanos - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
        boolean free = !closed;
        taken |= free;
        return free;
    }

    private synchronized void give() {
        taken = false;
        if (closed) {
            closeHandle();
        }
        notify();
    }

    /// Who asks has the whole lock for some microseconds.
    private void share(int shared) {
        for (int i = 0; shared >= 0 && i < TRIES; i++) {
            if (calls.shareLock(shared) != -Errno.EAGAIN) {
                return;
            }
            LockSupport.parkNanos(this, PAUSE_NANOS);
        }
    }

    /// Whether another process may have the folder open. While another thread asks or makes another
    /// handle, and after a close, the last answer; `true` before the first.
    public boolean others() {
        if (!take(System.nanoTime())) {
            return others;
        }
        try {
            boolean found = true;
            if (handle >= 0) {
                found = calls.tryLock(handle) != 0;
                share(handle);
            }
            others = found;
            return found;
        } finally {
            give();
        }
    }

    private void closeHandle() {
        int old = handle;
        handle = -1;
        if (old >= 0) {
            calls.close(old);
        }
    }

    /// A thread that hangs in the file system keeps the handle until it comes back. Idempotent.
    @Override
    public synchronized void close() {
        closed = true;
        if (!taken) {
            closeHandle();
        }
        notifyAll();
    }
}
