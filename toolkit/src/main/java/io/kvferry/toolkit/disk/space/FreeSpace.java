// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/// Keeps the last bytes of the file system free, asking the system only now and then. When several
/// writers ask at the same time and little is left, each may be told that its file fits, so less
/// than the reserve may stay free, by as much as they write.
///
/// Threading: any thread.
public final class FreeSpace {
    private static final long FRESH_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

    /// Time between two deletions that do not help: another writer may have taken the room.
    private static final long NEXT_TRY_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final FileStore store;
    private final long reserve;
    private long estimate;
    private long asOf;
    private boolean known;
    private volatile boolean deletingDoesNotHelp;
    private volatile long helplessSince;

    /// @param reserve bytes that stay free, 0 for none
    public FreeSpace(Path folder, long reserve) {
        this.reserve = reserve;
        try {
            this.store = Files.getFileStore(folder);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot ask for free space of " + folder, e);
        }
    }

    /// Bytes by which a new file of `bytes` would eat into the reserve; zero or less when it fits.
    public synchronized long shortage(long bytes, long now) {
        if (reserve == 0) {
            return 0; // nothing to keep: let the file system say when it is full
        }
        // Near the edge the estimate must be exact; far from it a quarter of a second of writes
        // cannot reach the reserve.
        if (!known || now - asOf > FRESH_NANOS || estimate - bytes < 2 * reserve) {
            ask(now);
        }
        long shortage = reserve + bytes - estimate;
        if (shortage <= 0) {
            estimate -= bytes;
        }
        return shortage;
    }

    /// A write met a full file system: ask again next time.
    public synchronized void invalidate() {
        known = false;
    }

    /// A write met a file system that is full although it has room, as with a quota of the user or
    /// without inodes. Whether it is worth a try to delete as much as the write needs: not for 30 s
    /// after that did not help, unless something was written since, and not without a reserve,
    /// where the file system decides alone.
    public boolean deletingMayHelp(long now) {
        invalidate();
        return reserve > 0 && !(deletingDoesNotHelp && now - helplessSince < NEXT_TRY_NANOS);
    }

    /// A write failed again after as much had been deleted.
    public void deletingDidNotHelp(long now) {
        helplessSince = now;
        deletingDoesNotHelp = true;
    }

    /// A file was written.
    public void written() {
        if (deletingDoesNotHelp) { // read after each file, and seldom written
            deletingDoesNotHelp = false;
        }
    }

    private void ask(long now) {
        try {
            estimate = store.getUsableSpace();
        } catch (IOException _) {
            estimate = Long.MAX_VALUE; // unknown: the write fails if there is none
        }
        asOf = now;
        known = true;
    }
}
