// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;

/// What this process holds, in MiB where it is memory.
///
/// @param buffers direct and mapped ones
/// @param resident outside of the heap
public record Held(long heap, long buffers, long resident, long descriptors, long threads) {
    private static final long HEAP_BELOW = 32L << 30;
    private static final Pattern MAPPING = Pattern.compile("[0-9a-f]+-[0-9a-f]+ ");

    /// The serial collector leaves some garbage where moving what is behind it is not worth it;
    /// each fourth collection (`MarkSweepAlwaysCompactCount`) leaves none.
    private static final int COLLECTIONS = 4;

    public static Held now() throws IOException {
        var runtime = Runtime.getRuntime();
        long heap = Long.MAX_VALUE;
        for (int i = 0; i < COLLECTIONS; i++) {
            System.gc();
            heap = Math.min(heap, runtime.totalMemory() - runtime.freeMemory());
        }
        long buffers =
                ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                        .mapToLong(BufferPoolMXBean::getMemoryUsed)
                        .sum();
        return new Held(
                heap >> 20,
                buffers >> 20,
                residentKib() >> 10,
                count("/proc/self/fd"),
                ManagementFactory.getThreadMXBean().getThreadCount());
    }

    private static long count(String folder) throws IOException {
        try (var files = Files.list(Path.of(folder))) {
            return files.count();
        }
    }

    /// KiB of all mappings but the heap, of which the collector takes what it pleases. With
    /// compressed pointers it lies below 32 GiB, and nothing else does.
    private static long residentKib() throws IOException {
        long sum = 0;
        boolean counts = false;
        for (var line : Files.readAllLines(Path.of("/proc/self/smaps"))) {
            if (MAPPING.matcher(line).lookingAt()) {
                var start = line.substring(0, line.indexOf('-'));
                counts = Long.parseUnsignedLong(start, 16) >= HEAP_BELOW;
            } else if (counts && line.startsWith("Rss:")) {
                sum += Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        return sum;
    }
}
