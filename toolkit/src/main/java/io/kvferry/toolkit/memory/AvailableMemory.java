// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.memory;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.StringTokenizer;

/// How much memory this process can allocate before the OOM killer acts: what the host has left or
/// what the process's control group (container) permits, whichever is less.
///
/// Cached file pages count as free, in a control group too, because the kernel drops them first; so
/// do the names and inodes of files that it keeps (`slab_reclaimable`; version 1 does not tell).
/// Pages of `tmpfs` (`/dev/shm`) are no cached file pages; they count as taken.
///
/// @param bytes [Long#MAX_VALUE] where the system does not say
/// @param bound what sets the limit, for messages
public record AvailableMemory(long bytes, String bound) {
    private static final Logger LOG = LoggerFactory.getLogger(AvailableMemory.class);
    private static final String GROUPS = "sys/fs/cgroup";

    /// Names of a version's files; the statistics are fields of `memory.stat`.
    private enum Version {
        ONE(
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
                "total_active_file"),
        TWO("memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable");

        private final String limit;
        private final String usage;
        private final List<String> freed;

        Version(String limit, String usage, String... freed) {
            this.limit = limit;
            this.usage = usage;
            this.freed = List.of(freed);
        }
    }

    /// As the system says at this moment.
    public static AvailableMemory now() {
        return under(Path.of("/"));
    }

    /// @param root where `proc` and `sys` are
    static AvailableMemory under(Path root) {
        var least = new AvailableMemory(ofHost(root), "memory that this host has left");
        for (var line : lines(root.resolve("proc/self/cgroup"))) {
            // hierarchy:controllers:path
            var words = line.split(":", 3);
            if (words.length < 3) {
                continue;
            }
            if (words[1].isEmpty()) {
                least = least.orLess(root.resolve(GROUPS), words[2], Version.TWO);
            } else if (List.of(words[1].split(",")).contains("memory")) {
                least = least.orLess(root.resolve(GROUPS).resolve("memory"), words[2], Version.ONE);
            }
        }
        return least;
    }

    private static long ofHost(Path root) {
        return field(root.resolve("proc/meminfo"), "MemAvailable:", 1024);
    }

    /// The least of this, of a group, and of the groups that it is part of. In a container the
    /// mounted tree often begins at the container's own group, whatever its path is outside.
    private AvailableMemory orLess(Path mounted, String path, Version version) {
        var least = this;
        var group = mounted.resolve(path.replaceFirst("^/+", "")).normalize();
        for (var at = group.startsWith(mounted) ? group : mounted;
                at != null && at.startsWith(mounted);
                at = at.getParent()) {
            long left = left(at, version);
            if (left < least.bytes) {
                least =
                        new AvailableMemory(
                                left, "memory that the control group " + at + " permits");
            }
        }
        return least;
    }

    private static long left(Path group, Version version) {
        long limit = number(group.resolve(version.limit));
        long usage = number(group.resolve(version.usage));
        if (limit == Long.MAX_VALUE || usage == Long.MAX_VALUE) {
            return Long.MAX_VALUE; // no limit, or the root, which has none
        }
        for (var name : version.freed) {
            long freed = field(group.resolve("memory.stat"), name, 1);
            usage -= freed == Long.MAX_VALUE ? 0 : freed;
        }
        return Math.max(0, limit - Math.max(0, usage));
    }

    private static long number(Path file) {
        var lines = lines(file);
        return lines.isEmpty() ? Long.MAX_VALUE : parse(lines.getFirst().strip(), 1);
    }

    private static long field(Path file, String name, long unit) {
        for (var line : lines(file)) {
            if (!line.startsWith(name)) {
                continue;
            }
            // No regular expression: this is asked where memory grows within a request.
            var words = new StringTokenizer(line);
            if (words.nextToken().equals(name) && words.hasMoreTokens()) {
                return parse(words.nextToken(), unit);
            }
        }
        return Long.MAX_VALUE;
    }

    /// [Long#MAX_VALUE] of `max`, and of what is no number.
    private static long parse(String text, long unit) {
        try {
            return Math.multiplyExact(Long.parseLong(text), unit);
        } catch (NumberFormatException | ArithmeticException e) {
            return Long.MAX_VALUE;
        }
    }

    private static List<String> lines(Path file) {
        try {
            return Files.exists(file) ? Files.readAllLines(file) : List.of();
        } catch (IOException | UncheckedIOException e) {
            LOG.debug("{} cannot be read: {}", file, e.toString());
            return List.of();
        }
    }
}
