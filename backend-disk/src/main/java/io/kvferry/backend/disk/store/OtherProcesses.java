// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.space.FolderUsers;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Whether other processes have the folder open, for I/O threads that ask for each file: the system
/// is asked at most once a second.
///
/// Threading: any thread.
final class OtherProcesses {
    private static final Logger LOG = LoggerFactory.getLogger(OtherProcesses.class);
    private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final FolderUsers users;
    private final Path folder;
    private final AtomicLong due = new AtomicLong(System.nanoTime());
    private volatile boolean present;

    OtherProcesses(FolderUsers users, Path folder) {
        this.users = users;
        this.folder = folder;
    }

    /// At most a second old; while another thread asks, the answer before that.
    boolean present() {
        long now = System.nanoTime();
        long time = due.get();
        if (now - time >= 0 && due.compareAndSet(time, now + INTERVAL_NANOS)) {
            ask();
        }
        return present;
    }

    private void ask() {
        boolean others = users.others();
        if (others != present) {
            present = others;
            LOG.info(
                    others
                            ? "block store {}: another process has the folder open, so direct I/O"
                                    + " 'auto' goes through the page cache"
                            : "block store {}: no other process has the folder open any more, so"
                                    + " direct I/O 'auto' bypasses the page cache",
                    folder);
        }
    }
}
