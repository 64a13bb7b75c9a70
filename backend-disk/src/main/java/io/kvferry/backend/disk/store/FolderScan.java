// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.disk.FolderNames;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.files.FileTrouble;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/// Compares the catalog with the folder. Only subfolders whose entries changed are listed, and only
/// files that were not known are looked at.
///
/// Threading: any thread; one scan at a time, by its own lock. A [#clear] deletes files beside a
/// scan, and waits for it before it clears the catalog.
final class FolderScan {
    private static final Logger LOG = LoggerFactory.getLogger(FolderScan.class);

    /// Changes so close together may leave a folder with the same modification time.
    private static final long CLOSE_MILLIS = 2_000;

    /// Number of scans after which all folders are listed again.
    private static final int FULL_EVERY = 20;

    /// Files that are looked up in the catalog at a time, which holds others up as long.
    private static final int BATCH = 64;

    private static final String MODIFIED = "lastModifiedTime";
    private static final String CHANGED = "ctime";

    /// The time of the last change is not known everywhere.
    private static final String TEMP_ATTRIBUTES =
            FileSystems.getDefault().supportedFileAttributeViews().contains("unix")
                    ? "unix:" + MODIFIED + "," + CHANGED
                    : MODIFIED;

    private record Found(KeyDigest digest, long bytes, long modifiedNanos) {}

    private final StoreCore core;
    private final StoreFolder.Names paths;
    private final FolderNames names;
    private final FileStatus status = new FileStatus();

    /// Files of the folder at hand that were not looked up yet, by the words of their digests.
    private final long[] met = new long[BATCH * KeyDigest.WORDS];

    private int metCount;
    private final long[] modified = new long[StoreFolder.FOLDERS];
    private final long[] listedAt = new long[StoreFolder.FOLDERS];
    private final boolean[] listed = new boolean[StoreFolder.FOLDERS];
    private int number;

    FolderScan(StoreCore core) {
        this.core = core;
        this.paths = core.folder().names(Arena.ofAuto());
        this.names = new FolderNames(core.calls(), FolderNames.BUFFER_BYTES);
    }

    /// Adopts blocks of other processes and of earlier ones, and forgets what is gone.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the folder cannot be read
    synchronized void run() {
        long startedAt = System.nanoTime();
        number++;
        var found = new ArrayList<Found>();
        boolean complete = false;
        try {
            for (int i = 0; i < StoreFolder.FOLDERS; i++) {
                listed[i] = listIfChanged(i, found);
            }
            adopt(found, startedAt);
            core.removed(
                    core.catalog()
                            .sweep(number, startedAt, word -> listed[StoreFolder.subfolder(word)]));
            complete = true;
        } catch (IOException e) {
            throw FileTrouble.exception("cannot look through " + core.folder().blocks(), e);
        } catch (DirectoryIteratorException e) {
            throw FileTrouble.exception(
                    "cannot look through " + core.folder().blocks(),
                    Objects.requireNonNull(e.getCause()));
        } finally {
            if (!complete) {
                listAll(); // what was found is lost, or some of it
            }
        }
    }

    private void adopt(List<Found> found, long startedAt) {
        found.sort(Comparator.comparingLong(Found::modifiedNanos)); // each is then the newest
        long nowMillis = core.recency().nowMillis();
        for (Found file : found) {
            core.catalog()
                    .discovered(
                            file.digest(),
                            file.bytes(),
                            startedAt,
                            file.modifiedNanos(),
                            nowMillis,
                            number);
        }
    }

    /// The next scan lists all folders, whether their entries have changed or not.
    private synchronized void listAll() {
        Arrays.fill(listedAt, 0);
    }

    /// For tests of what it costs: subfolders that the last scan listed.
    synchronized int foldersListed() {
        int count = 0;
        for (boolean each : listed) {
            count += each ? 1 : 0;
        }
        return count;
    }

    /// For tests of how often: scans that are over. Waits for the end of one that runs.
    synchronized int scans() {
        return number;
    }

    /// Lists a subfolder whose entries may have changed since it was listed; answers whether it
    /// did.
    private boolean listIfChanged(int i, List<Found> found) throws IOException {
        long now = System.currentTimeMillis();
        long time;
        try {
            time = Files.getLastModifiedTime(core.folder().subfolder(i)).to(TimeUnit.NANOSECONDS);
        } catch (NoSuchFileException _) {
            time = -1;
        }
        boolean same =
                time == modified[i]
                        && TimeUnit.NANOSECONDS.toMillis(time) + CLOSE_MILLIS < listedAt[i]
                        && number % FULL_EVERY != 0;
        if (!same) {
            metCount = 0;
            list(i, found);
            lookUp(found);
            modified[i] = time;
            listedAt[i] = now;
        }
        return !same;
    }

    private void list(int i, List<Found> found) throws IOException {
        if (names.open(paths.folder((long) i << 60)) < 0) {
            listByStream(i, found);
            return;
        }
        int rc;
        try {
            for (rc = names.next(); rc > 0; rc = names.next()) {
                int at = metCount * KeyDigest.WORDS;
                if (core.folder().block(names, met, at) && StoreFolder.subfolder(met[at]) == i) {
                    noteMet(found);
                }
            }
        } finally {
            names.close();
        }
        if (rc < 0 && !Errno.isGone(-rc)) { // deleted meanwhile: its blocks are gone
            throw new IOException(core.folder().subfolder(i) + ": " + Errno.text(-rc));
        }
    }

    /// Makes objects of each name: where the platform has no call for it, and where there is no
    /// such folder or it cannot be opened, which the JDK says in its own words.
    private void listByStream(int i, List<Found> found) throws IOException {
        try (var files = Files.newDirectoryStream(core.folder().subfolder(i))) {
            for (Path file : files) {
                var block = core.folder().block(file.getFileName().toString());
                if (block.isPresent() && StoreFolder.subfolder(block.get()) == i) {
                    block.get().put(met, metCount * KeyDigest.WORDS);
                    noteMet(found);
                }
            }
        } catch (NoSuchFileException _) {
            // deleted meanwhile: its blocks are gone
        }
    }

    /// A file's digest was put behind those that are there.
    private void noteMet(List<Found> found) {
        metCount++;
        if (metCount == BATCH) {
            lookUp(found);
        }
    }

    private void lookUp(List<Found> found) {
        int unknown = core.catalog().scanned(met, metCount, number);
        metCount = 0;
        for (int i = 0; i < unknown; i++) {
            KeyDigest digest = KeyDigest.of(met, i * KeyDigest.WORDS);
            look(digest, found);
        }
    }

    /// Skips files that cannot be examined or deleted, so that one bad file does not hide all
    /// others.
    private void look(KeyDigest digest, List<Found> found) {
        int rc = core.calls().status(paths.file(digest), status);
        if (Errno.isGone(-rc)) {
            return; // another process deleted it meanwhile
        }
        if (rc < 0 && rc != -Errno.NOT_REGULAR) {
            LOG.debug("cannot look at {}: {}", core.folder().file(digest), Errno.text(-rc));
            return;
        }
        // No whole block is empty or unaligned; such a file can only cost readers a try.
        if (rc < 0 || status.bytes() == 0 || status.bytes() % AlignedStaging.ALIGNMENT != 0) {
            deleteUseless(digest, rc < 0);
            return;
        }
        found.add(new Found(digest, status.bytes(), status.modifiedNanos()));
    }

    private void deleteUseless(KeyDigest digest, boolean mayBeFolder) {
        Path file = core.folder().file(digest);
        if (mayBeFolder && Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)) {
            return;
        }
        int rc = core.calls().unlink(paths.file(digest));
        if (rc == 0) {
            core.counters().corrupt.increment();
        } else if (!Errno.isGone(-rc)) {
            LOG.debug("cannot delete the useless file {}: {}", file, Errno.text(-rc));
        }
    }

    /// Deletes unfinished files that nobody has changed for long.
    void reapTemps() {
        reapTemps(System.currentTimeMillis());
    }

    /// As above, with a clock for tests. An unfinished file may have any modification time: its
    /// writer sets it, or it is inherited from a reused victim. So the change time (ctime), which
    /// cannot be set, counts as well.
    void reapTemps(long now) {
        var times = core.config().times();
        long oldest = now - times.tempMaxAge().toMillis();
        // A victim's file that was not written over yet may have a time in the future, but no later
        // one than this; a later one means that the clock was set back.
        long latest = now + times.tempMaxAge().plus(times.recency()).toMillis();
        for (int i = 0; i < StoreFolder.FOLDERS; i++) {
            forEachFile(
                    core.folder().temps(i),
                    file -> {
                        try {
                            reap(file, now, oldest, latest);
                        } catch (NoSuchFileException _) {
                            // its writer has finished it meanwhile
                        } catch (IOException e) {
                            LOG.debug("cannot delete the unfinished file {}", file, e);
                        }
                    });
        }
    }

    private void reap(Path file, long now, long oldest, long latest) throws IOException {
        var found = Files.readAttributes(file, TEMP_ATTRIBUTES, LinkOption.NOFOLLOW_LINKS);
        if (isOver(found.get(MODIFIED), now, oldest, latest)
                && isOver(found.get(CHANGED), now, oldest, latest)
                && !Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)
                && Files.deleteIfExists(file)) {
            core.counters().reapedTemps.increment();
        }
    }

    /// Whether a file of this time is left over, as far as that time says; one that the platform
    /// does not have says nothing.
    private static boolean isOver(@Nullable Object time, long now, long oldest, long latest) {
        if (!(time instanceof FileTime known)) {
            return true;
        }
        return Math.min(now, known.toMillis()) <= oldest || known.toMillis() > latest;
    }

    /// Deletes every block, and what was set aside; answers how many blocks. Passes over what
    /// cannot be deleted, and throws the first failure at the end. The catalog forgets all of them,
    /// also when only some could be deleted; the next scan finds the others.
    ///
    /// @param closed asked before each deletion whether the store is closed, whose folder the next
    ///   store may use
    /// @throws KvFerryException [ErrorCode#STORAGE_IO], or [ErrorCode#CLOSED]
    long clear(BooleanSupplier closed) {
        var clearing = new Clearing(closed);
        try {
            for (int i = 0; i < StoreFolder.FOLDERS; i++) {
                clearing.empty(core.folder().subfolder(i), clearing::delete);
            }
        } finally {
            core.removed(forgetAll());
        }
        clearing.empty(core.folder().bad(), FolderScan::deleteIfPossible);
        return clearing.deleted();
    }

    /// What one [#clear] has deleted, and the first failure.
    private final class Clearing {
        private final BooleanSupplier closed;
        private long deleted;
        private @Nullable KvFerryException failure;

        Clearing(BooleanSupplier closed) {
            this.closed = closed;
        }

        void empty(Path folder, FileAction deletion) {
            try {
                walk(folder, deletion);
            } catch (IOException e) {
                failed("cannot look through " + folder, e);
            }
        }

        void delete(Path file) {
            if (closed.getAsBoolean()) {
                throw new KvFerryException(
                        ErrorCode.CLOSED,
                        "block store "
                                + core.folder().folder()
                                + " was closed before all blocks were deleted");
            }
            if (StoreFolder.isMark(file) || Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)) {
                return;
            }
            try {
                if (Files.deleteIfExists(file)) {
                    deleted++;
                }
            } catch (IOException e) {
                if (core.folder().block(file.getFileName().toString()).isPresent()) {
                    failed("cannot delete " + file, e);
                } else {
                    stays(file, e);
                }
            }
        }

        private void failed(String what, IOException e) {
            if (failure == null) {
                failure = FileTrouble.exception(what, e);
            } else {
                LOG.debug("{}", what, e);
            }
        }

        long deleted() {
            if (failure != null) {
                throw failure;
            }
            return deleted;
        }
    }

    /// Not beside a scan, which may have listed what is deleted now and would adopt it afterwards.
    private synchronized List<KeyDigest> forgetAll() {
        try {
            return core.catalog().clear();
        } finally {
            listAll();
        }
    }

    /// What the medium cannot read it may not be able to delete.
    private static void deleteIfPossible(Path file) {
        try {
            Files.deleteIfExists(file);
        } catch (IOException e) {
            stays(file, e);
        }
    }

    private static void stays(Path file, IOException why) {
        LOG.debug("{} stays", file, why);
    }

    @FunctionalInterface
    private interface FileAction {
        void apply(Path file) throws IOException;
    }

    private static void forEachFile(Path folder, FileAction action) {
        try {
            walk(folder, action);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot look through " + folder, e);
        }
    }

    private static void walk(Path folder, FileAction action) throws IOException {
        try (var files = Files.newDirectoryStream(folder)) {
            for (Path file : files) {
                try {
                    action.apply(file);
                } catch (NoSuchFileException _) {
                    // another process deleted it meanwhile
                }
            }
        } catch (NoSuchFileException _) {
            // no such folder: nothing in it
        } catch (DirectoryIteratorException e) {
            throw Objects.requireNonNull(e.getCause());
        }
    }
}
