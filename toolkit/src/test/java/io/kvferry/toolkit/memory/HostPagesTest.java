// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/// Memory whose pages are mapped before somebody touches them, as the kernel counts it.
class HostPagesTest {
    private static final long MIB = 1 << 20;

    @TempDir private Path folder;

    private static long minorFaults() throws IOException {
        var stat = Files.readString(Path.of("/proc/thread-self/stat"));
        return Long.parseLong(stat.substring(stat.lastIndexOf(')') + 2).split(" ", -1)[7]);
    }

    private static void assumeLinux() {
        Assumptions.assumeTrue(
                Files.exists(Path.of("/proc/thread-self/stat")), "counts faults by Linux's /proc");
    }

    private static void touch(MemorySegment memory) {
        for (long at = 0; at < memory.byteSize(); at += 4096) {
            memory.set(ValueLayout.JAVA_BYTE, at, (byte) 1);
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 4096, 4 * MIB - 1, 4 * MIB, 9 * MIB + 5})
    void memoryIsZeroedAndBeginsAtAPage(long bytes) {
        try (var arena = Arena.ofShared()) {
            var memory = HostPages.allocate(bytes, arena);
            assertThat(memory.byteSize()).isEqualTo(bytes);
            assertThat(memory.address() % 4096).isZero();
            assertThat(memory.mismatch(MemorySegment.ofArray(new byte[(int) bytes]))).isEqualTo(-1);
            memory.fill((byte) 7);
        }
    }

    @Test
    void endsWithItsArena() {
        var arena = Arena.ofShared();
        var memory = HostPages.allocate(8 * MIB, arena);
        arena.close();
        assertThatThrownBy(() -> memory.get(ValueLayout.JAVA_BYTE, 0))
                .isInstanceOf(IllegalStateException.class);
    }

    @Test
    void touchingItCausesNoFaults() throws IOException {
        assumeLinux();
        try (var arena = Arena.ofShared()) {
            var memory = HostPages.allocate(64 * MIB, arena);
            touch(memory.asSlice(0, 4096)); // loads what the loop needs
            long before = minorFaults();
            touch(memory);
            assertThat(minorFaults() - before).isLessThan(64 * MIB / 4096 / 16);
        }
    }

    @Test
    void pagesOfAFileAreMappedAheadAndKeepTheirContent() throws IOException {
        assumeLinux();
        var file = folder.resolve("f");
        Files.write(file, new byte[] {5});
        try (var arena = Arena.ofShared();
                var channel =
                        FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var memory = channel.map(FileChannel.MapMode.READ_WRITE, 0, 16 * MIB, arena);
            Assumptions.assumeTrue(
                    HostPages.mapAhead(memory) == HostPages.Mapped.ALL,
                    "needs Linux 5.14 or newer");
            assertThat(memory.get(ValueLayout.JAVA_BYTE, 0)).isEqualTo((byte) 5);
            touch(memory.asSlice(0, 4096));
            long before = minorFaults();
            touch(memory);
            assertThat(minorFaults() - before).isLessThan(16 * MIB / 4096 / 16);
        }
    }

    @Test
    void whatCannotBeHadIsAnOutOfMemoryError() {
        try (var arena = Arena.ofShared()) {
            assumeLinux();
            // The kernel would map the smaller one, and end a process when its pages are touched.
            for (long bytes : new long[] {2 * AvailableMemory.now().bytes(), 1L << 60}) {
                assertThatThrownBy(() -> HostPages.allocate(bytes, arena))
                        .isInstanceOf(OutOfMemoryError.class);
            }
        }
    }
}
