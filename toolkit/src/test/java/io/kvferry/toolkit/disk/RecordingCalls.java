// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/// Real file calls that note what they changed, and a power cut after any of them: what is then on
/// the medium is what was synced, and of the rest as much as the test says.
@SuppressWarnings("NullAway") // look-ups of what the test put there
public final class RecordingCalls implements FileCalls {
    /// What a power cut leaves of what was not synced.
    public enum Unsynced {
        /// Neither names nor bytes.
        LOST,
        /// Every name, but of files without their bytes: as a journal of names alone leaves it.
        NAMES_KEPT,
        /// Every name, and the right length full of zeros.
        ZEROS
    }

    private sealed interface Change {}

    private record Make(Path folder) implements Change {}

    private record Create(Path file) implements Change {}

    private record Write(Path file, long offset, byte[] bytes) implements Change {}

    private record SyncData(Path file) implements Change {}

    private record SyncNames(Path folder) implements Change {}

    private record Rename(Path from, Path to) implements Change {}

    private record Unlink(Path file) implements Change {}

    private record Remove(Path folder) implements Change {}

    private static final class Content {
        byte[] bytes = {};
        byte[] synced = {};
    }

    /// Whether stores may write from several places at once.
    public volatile boolean gathers;

    private final FileCalls real;
    private final List<Change> changes = new ArrayList<>();
    private final Map<Integer, Path> open = new HashMap<>();

    public RecordingCalls(FileCalls real) {
        this.real = real;
    }

    /// Changes so far.
    public synchronized int count() {
        return changes.size();
    }

    /// Builds below `target` what a power cut after the first `count` changes leaves of `source`.
    public synchronized void survive(int count, Unsynced unsynced, Path source, Path target) {
        Map<Path, Content> names = new TreeMap<>(); // null: a folder
        Map<Path, Content> durable = new TreeMap<>();
        for (Change change : changes.subList(0, count)) {
            apply(change, names, durable);
        }
        var left = unsynced == Unsynced.LOST ? durable : names;
        Set<Path> kept = new TreeSet<>();
        try {
            Files.createDirectories(target);
            for (var entry : left.entrySet()) { // parents come before what is in them
                Path name = entry.getKey();
                if (!name.startsWith(source)
                        || (name.getParent().startsWith(source)
                                && !kept.contains(name.getParent())
                                && !name.getParent().equals(source))) {
                    continue;
                }
                kept.add(name);
                Path there = target.resolve(source.relativize(name).toString());
                Content content = entry.getValue();
                if (content == null) {
                    Files.createDirectories(there);
                } else {
                    Files.write(
                            there,
                            unsynced == Unsynced.ZEROS && content.synced.length == 0
                                    ? new byte[content.bytes.length]
                                    : content.synced);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void apply(Change change, Map<Path, Content> names, Map<Path, Content> durable) {
        switch (change) {
            case Make(Path folder) -> names.put(folder, null);
            case Create(Path file) -> names.put(file, new Content());
            case Write(Path file, long offset, byte[] bytes) -> {
                Content content = names.get(file);
                int end = (int) offset + bytes.length;
                if (content.bytes.length < end) {
                    content.bytes = Arrays.copyOf(content.bytes, end);
                }
                System.arraycopy(bytes, 0, content.bytes, (int) offset, bytes.length);
            }
            case SyncData(Path file) -> names.get(file).synced = names.get(file).bytes.clone();
            case Rename(Path from, Path to) -> names.put(to, names.remove(from));
            case Unlink(Path file) -> names.remove(file);
            case Remove(Path folder) -> { // at once: the system may write it at any time
                names.keySet().removeIf(name -> name.startsWith(folder));
                durable.keySet().removeIf(name -> name.startsWith(folder));
            }
            case SyncNames(Path folder) -> {
                durable.keySet().removeIf(name -> folder.equals(name.getParent()));
                names.forEach((name, content) -> {
                    if (folder.equals(name.getParent())) {
                        durable.put(name, content);
                    }
                });
            }
        }
    }

    /// Deletes a folder with all that is in it, as somebody may who knows nothing of stores.
    public synchronized void remove(Path folder) throws IOException {
        try (var all = Files.walk(folder)) {
            for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        }
        changes.add(new Remove(folder));
    }

    private static Path path(MemorySegment path) {
        return Path.of(path.getString(0, PathText.CHARSET));
    }

    private synchronized int note(int rc, Change change) {
        if (rc >= 0) {
            changes.add(change);
        }
        return rc;
    }

    @Override
    public int openRead(MemorySegment path, boolean direct) {
        int handle = real.openRead(path, direct);
        if (handle >= 0) {
            synchronized (this) {
                open.put(handle, path(path));
            }
        }
        return handle;
    }

    @Override
    public int createNew(MemorySegment path, boolean direct) {
        int handle = note(real.createNew(path, direct), new Create(path(path)));
        if (handle >= 0) {
            synchronized (this) {
                open.put(handle, path(path));
            }
        }
        return handle;
    }

    @Override
    public synchronized int allocate(int handle, long bytes, boolean keepLength) {
        return note(
                real.allocate(handle, bytes, keepLength),
                new Write(open.get(handle), 0, new byte[keepLength ? 0 : Math.toIntExact(bytes)]));
    }

    @Override
    public int openOver(MemorySegment path, boolean direct) {
        int handle = real.openOver(path, direct);
        if (handle >= 0) {
            synchronized (this) {
                open.put(handle, path(path));
            }
        }
        return handle;
    }

    @Override
    public long read(int handle, MemorySegment buffer, long at, long length, long offset) {
        return real.read(handle, buffer, at, length, offset);
    }

    @Override
    public synchronized long write(
            int handle, MemorySegment buffer, long at, long length, long offset) {
        long written = real.write(handle, buffer, at, length, offset);
        if (written > 0 && open.containsKey(handle)) { // the lock file is no part of this
            byte[] bytes = buffer.asSlice(at, written).toArray(ValueLayout.JAVA_BYTE);
            changes.add(new Write(open.get(handle), offset, bytes));
        }
        return written;
    }

    @Override
    public int gatherLimit() {
        return gathers ? real.gatherLimit() : 0;
    }

    @Override
    public long cached(int handle, long bytes) {
        return real.cached(handle, bytes);
    }

    @Override
    public long scatterCached(int handle, MemorySegment ranges, int count, long offset) {
        return real.scatterCached(handle, ranges, count, offset);
    }

    @Override
    public synchronized long gather(int handle, MemorySegment ranges, int count, long offset) {
        long written = real.gather(handle, ranges, count, offset);
        long left = written;
        for (int i = 0; left > 0; i++) {
            long bytes = Math.min(left, ranges.getAtIndex(ValueLayout.JAVA_LONG, 2L * i + 1));
            var range = at(ranges.getAtIndex(ValueLayout.JAVA_LONG, 2L * i), bytes);
            changes.add(
                    new Write(
                            open.get(handle),
                            offset + written - left,
                            range.toArray(ValueLayout.JAVA_BYTE)));
            left -= bytes;
        }
        return written;
    }

    @SuppressWarnings("restricted") // what the system has just read as well
    private static MemorySegment at(long address, long bytes) {
        return MemorySegment.ofAddress(address).reinterpret(bytes);
    }

    @Override
    public synchronized int syncData(int handle) {
        return note(real.syncData(handle), new SyncData(open.get(handle)));
    }

    @Override
    public synchronized int close(int handle) {
        open.remove(handle);
        return real.close(handle);
    }

    @Override
    public int publish(MemorySegment from, MemorySegment to) {
        return note(real.publish(from, to), new Rename(path(from), path(to)));
    }

    @Override
    public int rename(MemorySegment from, MemorySegment to) {
        return note(real.rename(from, to), new Rename(path(from), path(to)));
    }

    @Override
    public int unlink(MemorySegment path) {
        return note(real.unlink(path), new Unlink(path(path)));
    }

    @Override
    public int status(MemorySegment path, FileStatus found) {
        return real.status(path, found);
    }

    @Override
    public int setModified(MemorySegment path, long nanos) {
        return real.setModified(path, nanos);
    }

    @Override
    public int setModified(int handle, long nanos) {
        return real.setModified(handle, nanos);
    }

    @Override
    public int makeFolder(MemorySegment path) {
        return note(real.makeFolder(path), new Make(path(path)));
    }

    @Override
    public int syncFolder(MemorySegment path) {
        return note(real.syncFolder(path), new SyncNames(path(path)));
    }

    @Override
    public int openFolder(MemorySegment path) {
        return real.openFolder(path);
    }

    @Override
    public long list(int handle, MemorySegment buffer) {
        return real.list(handle, buffer);
    }

    @Override
    public int openLockFile(MemorySegment path) {
        return real.openLockFile(path);
    }

    @Override
    public int tryLock(int handle) {
        return real.tryLock(handle);
    }

    @Override
    public int shareLock(int handle) {
        return real.shareLock(handle);
    }

    @Override
    public int unlock(int handle) {
        return real.unlock(handle);
    }
}
