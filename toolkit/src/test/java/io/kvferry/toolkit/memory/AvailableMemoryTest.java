// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.memory;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/// What a process may still take, by the files of a made-up system.
class AvailableMemoryTest {
    private static final long GIB = 1L << 30;

    @TempDir private Path root;

    @BeforeEach
    void hostHas32GibLeft() throws IOException {
        write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable:   33554432 kB\n");
    }

    private void write(String file, String content) throws IOException {
        var path = root.resolve(file);
        Files.createDirectories(path.getParent());
        Files.writeString(path, content);
    }

    private void group(String folder, String limit, long usage, long cached) throws IOException {
        write("sys/fs/cgroup/" + folder + "/memory.max", limit + "\n");
        write("sys/fs/cgroup/" + folder + "/memory.current", usage + "\n");
        write(
                "sys/fs/cgroup/" + folder + "/memory.stat",
                "anon 77\nfile 99\ninactive_file " + cached + "\nactive_file 4096\nshmem 55\n");
    }

    private void groupOfVersion1(String folder, String limit, long usage) throws IOException {
        var group = "sys/fs/cgroup/memory/" + folder;
        write(group + "/memory.limit_in_bytes", limit + "\n");
        write(group + "/memory.usage_in_bytes", usage + "\n");
        write(
                group + "/memory.stat",
                "inactive_file 1\ntotal_inactive_file 8192\ntotal_active_file 4096\n");
    }

    @Test
    void isWhatTheHostHasLeftWithoutControlGroups() {
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(32 * GIB);
        assertThat(AvailableMemory.under(root).bound()).contains("host");
    }

    @Test
    void hasNoBoundWhereTheSystemDoesNotSay() {
        assertThat(AvailableMemory.under(root.resolve("nothing")).bytes())
                .isEqualTo(Long.MAX_VALUE);
    }

    @Test
    void isWhatTheContainerPermits() throws IOException {
        write("proc/self/cgroup", "0::/\n");
        group("", String.valueOf(8 * GIB), 5 * GIB, 0);
        var available = AvailableMemory.under(root);
        assertThat(available.bytes()).isEqualTo(3 * GIB + 4096);
        assertThat(available.bound()).contains("control group");
    }

    @Test
    void cachedFilesCountAsFree() throws IOException {
        write("proc/self/cgroup", "0::/\n");
        group("", String.valueOf(8 * GIB), 8 * GIB, 6 * GIB);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(6 * GIB + 4096);
    }

    /// A process that has walked through many files has gigabytes of them.
    @Test
    void namesOfFilesThatTheKernelKeepsCountAsFree() throws IOException {
        write("proc/self/cgroup", "0::/\n");
        group("", String.valueOf(8 * GIB), 8 * GIB, 0);
        write(
                "sys/fs/cgroup/memory.stat",
                "slab_unreclaimable 777\nslab_reclaimable 2147483648\nslab 99\n");
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(2 * GIB);
    }

    @Test
    void theNarrowestGroupCounts() throws IOException {
        write("proc/self/cgroup", "0::/pod/engine\n");
        group("pod/engine", "max", 4 * GIB, 0);
        group("pod", String.valueOf(6 * GIB), 5 * GIB, 0);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(GIB + 4096);
        group("pod/engine", String.valueOf(4 * GIB), 4 * GIB, 0);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(4096);
    }

    /// The container's own group is mounted at the root, and its path is that of the host.
    @Test
    void aPathThatIsNotMountedStandsForTheRoot() throws IOException {
        write("proc/self/cgroup", "0::/kubepods/pod7/abc\n");
        group("", String.valueOf(2 * GIB), GIB, 0);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(GIB + 4096);
        write("proc/self/cgroup", "0::/../../other\n");
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(GIB + 4096);
    }

    @Test
    void knowsTheFirstVersionOfControlGroups() throws IOException {
        write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
        groupOfVersion1("", "9223372036854771712", 40 * GIB);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(32 * GIB);
        groupOfVersion1("docker/abc", String.valueOf(4 * GIB), 3 * GIB);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(GIB + 12288);
    }

    @Test
    void aGroupBeyondItsLimitHasNothingLeft() throws IOException {
        write("proc/self/cgroup", "0::/\n");
        group("", String.valueOf(GIB), 2 * GIB, 0);
        assertThat(AvailableMemory.under(root).bytes()).isZero();
    }

    @Test
    void unreadableFiguresAreNoBound() throws IOException {
        write("proc/self/cgroup", "nonsense\n0::/\n");
        group("", "?", GIB, 0);
        assertThat(AvailableMemory.under(root).bytes()).isEqualTo(32 * GIB);
    }
}
