// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Whether other processes use a shared folder: each keeps a share of the lock of one file while it
/// has the folder open, and who can get the whole lock is alone. Two that ask at the same moment
/// may both get `true` once.
///
/// Threading: any thread.
public final class FolderUsers implements AutoCloseable {
    private static final int TRIES = 100;
    private static final long PAUSE_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private final FileCalls calls;
    private final Path file;
    private int handle = -1;

    /// Where the file cannot be opened or locked, others are taken to be there.
    public FolderUsers(FileCalls calls, Path file) {
        this.calls = calls;
        this.file = file;
        reopen();
    }

    /// Goes on with the file that has the name now.
    public synchronized void reopen() {
        close();
        try (Arena arena = Arena.ofConfined()) {
            handle = calls.openLockFile(PathText.of(arena, file));
        }
        share();
    }

    /// Who asks has the whole lock for some microseconds.
    private void share() {
        for (int i = 0; handle >= 0 && i < TRIES; i++) {
            if (calls.shareLock(handle) != -Errno.EAGAIN) {
                return;
            }
            LockSupport.parkNanos(this, PAUSE_NANOS);
        }
    }

    /// Whether another process may have the folder open.
    public synchronized boolean others() {
        if (handle < 0) {
            return true;
        }
        boolean alone = calls.tryLock(handle) == 0;
        share();
        return !alone;
    }

    @Override
    public synchronized void close() {
        if (handle >= 0) {
            calls.close(handle);
            handle = -1;
        }
    }
}
