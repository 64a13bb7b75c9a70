// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/// Keeps the last bytes of the file system free, asking the system only now and then.
///
/// Threading: any thread.
final class FreeSpace {
    private static final long FRESH_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

    private final FileStore store;
    private final long reserve;
    private long believed;
    private long asOf;
    private boolean known;

    FreeSpace(Path folder, long reserve) {
        this.reserve = reserve;
        try {
            this.store = Files.getFileStore(folder);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot ask for free space of " + folder, e);
        }
    }

    /// Bytes by which a new file of `bytes` would eat into the reserve; zero or less when it fits.
    synchronized long shortage(long bytes, long now) {
        if (reserve == 0) {
            return 0; // nothing to keep: let the file system say when it is full
        }
        // Near the edge the belief must be exact; far from it a quarter of a second of writes
        // cannot reach the reserve.
        if (!known || now - asOf > FRESH_NANOS || believed - bytes < 2 * reserve) {
            ask(now);
        }
        long shortage = reserve + bytes - believed;
        if (shortage <= 0) {
            believed -= bytes;
        }
        return shortage;
    }

    /// A write met a full file system: ask again next time.
    synchronized void doubt() {
        known = false;
    }

    private void ask(long now) {
        try {
            believed = store.getUsableSpace();
        } catch (IOException _) {
            believed = Long.MAX_VALUE; // unknown: the write itself will tell
        }
        asOf = now;
        known = true;
    }
}
