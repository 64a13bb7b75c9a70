// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/// Owners that an operator has declared gone for good. Removals no longer wait for them, so what
/// they held must not become visible again. After a recall an owner on that segment may be listed
/// again, but only with a later epoch than any that was known before.
///
/// With a file this outlives the master: one line each, `segment \t epoch \t forgotten|recalled`.
///
/// Threading: one thread at a time.
final class ForgottenOwners {
    /// More of them are refused.
    static final int MOST = 4096;

    private static final String FORGOTTEN = "forgotten";
    private static final String RECALLED = "recalled";

    private final Optional<Path> file;
    private Map<String, Entry> bySegment;

    /// @param epoch of the last life that is known
    private record Entry(long epoch, boolean recalled) {}

    /// @throws KvFerryException [ErrorCode#IO] when the file is there and cannot be read
    ForgottenOwners(Optional<Path> file) {
        this.file = file;
        this.bySegment = file.filter(Files::exists).map(ForgottenOwners::read).orElse(Map.of());
    }

    private static Map<String, Entry> read(Path file) {
        var entries = new LinkedHashMap<String, Entry>();
        try {
            for (String line : Files.readAllLines(file)) {
                String[] words = line.split("\t", -1);
                if (words.length != 3 || !Set.of(FORGOTTEN, RECALLED).contains(words[2])) {
                    throw new IOException("no owner: " + line);
                }
                entries.put(
                        words[0], new Entry(Long.parseLong(words[1]), words[2].equals(RECALLED)));
            }
        } catch (IOException | NumberFormatException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "the forgotten owners in " + file + " cannot be read: " + e, e);
        }
        return entries;
    }

    /// @param epoch of its last life; 0 where none is known
    /// @return false when there are too many
    /// @throws KvFerryException [ErrorCode#IO] when the file cannot be written; nothing has changed
    ///   then
    boolean forget(String segment, long epoch) {
        var more = new LinkedHashMap<>(bySegment);
        Entry known = more.get(segment);
        long last = known == null ? epoch : Math.max(epoch, known.epoch);
        more.put(segment, new Entry(last, false));
        if (more.size() > MOST) {
            return false;
        }
        change(more);
        return true;
    }

    /// @return false when it is not forgotten
    /// @throws KvFerryException as [#forget]
    boolean recall(String segment) {
        Entry known = bySegment.get(segment);
        if (known == null || known.recalled) {
            return false;
        }
        var changed = new LinkedHashMap<>(bySegment);
        changed.put(segment, new Entry(known.epoch, true));
        change(changed);
        return true;
    }

    /// Whether an owner that reports itself must not be listed. Takes note of its life: that one is
    /// not listed after a recall either.
    boolean refuses(ListedOwner owner) {
        Entry known = bySegment.get(owner.segment());
        if (known == null) {
            return false;
        }
        if (!known.recalled && owner.epoch() > known.epoch) {
            var changed = new LinkedHashMap<>(bySegment);
            changed.put(owner.segment(), new Entry(owner.epoch(), false));
            bySegment = changed;
        }
        return !known.recalled || owner.epoch() <= known.epoch;
    }

    /// The segments of those that are forgotten now.
    Set<String> segments() {
        return bySegment.entrySet().stream()
                .filter(entry -> !entry.getValue().recalled)
                .map(Map.Entry::getKey)
                .collect(Collectors.toUnmodifiableSet());
    }

    private void change(Map<String, Entry> changed) {
        if (file.isPresent()) {
            write(file.get(), changed);
        }
        bySegment = changed;
    }

    private static void write(Path file, Map<String, Entry> entries) {
        List<String> lines =
                entries.entrySet().stream()
                        .map(entry ->
                                entry.getKey()
                                        + "\t"
                                        + entry.getValue().epoch
                                        + "\t"
                                        + (entry.getValue().recalled ? RECALLED : FORGOTTEN)
                                        + "\n")
                        .toList();
        Path next = file.resolveSibling(file.getFileName() + ".next");
        try {
            try (var channel =
                    FileChannel.open(
                            next,
                            StandardOpenOption.CREATE,
                            StandardOpenOption.TRUNCATE_EXISTING,
                            StandardOpenOption.WRITE)) {
                var bytes =
                        ByteBuffer.wrap(String.join("", lines).getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    channel.write(bytes);
                }
                channel.force(true);
            }
            Files.move(
                    next,
                    file,
                    StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
            Path folder = file.resolveSibling("");
            try (var names = FileChannel.open(folder, StandardOpenOption.READ)) {
                names.force(true);
            }
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "the forgotten owners in " + file + " cannot be kept: " + e, e);
        }
    }
}
