// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

class FolderNamesTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private final FolderNames names = new FolderNames(calls, 300);

    @BeforeEach
    void needsLinux() {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform().gatherLimit() > 0, "needs libc of 64-bit Linux");
    }

    private static MemorySegment path(Path folder) {
        return PathText.of(Arena.ofAuto(), folder);
    }

    /// The names, or those up to a failure and its number.
    private List<String> all() {
        var all = new ArrayList<String>();
        int rc = names.next();
        while (rc == 1) {
            var bytes = new byte[names.length()];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = names.at(i);
            }
            all.add(new String(bytes, StandardCharsets.UTF_8));
            rc = names.next();
        }
        if (rc < 0) {
            all.add(Errno.text(-rc));
        }
        return all;
    }

    /// More than fit into the buffer, of all lengths.
    @Test
    void listsEachNameOnce() throws Exception {
        var expected = new ArrayList<>(List.of(".", ".."));
        for (int length = 1; length <= 255; length++) {
            expected.add("n".repeat(length));
            Files.createFile(root.resolve("n".repeat(length)));
        }
        expected.add("é");
        Files.createDirectory(root.resolve("é"));
        for (int round = 0; round < 2; round++) {
            assertThat(names.open(path(root))).isZero();
            assertThat(all()).containsExactlyInAnyOrderElementsOf(expected);
        }
        names.close();
        long opened = calls.log.stream().filter("openFolder"::equals).count();
        assertThat(calls.log.stream().filter("close"::equals).count()).isEqualTo(opened);
    }

    @Test
    void saysWhatAFolderIsNot() throws Exception {
        assertThat(names.open(path(root.resolve("none")))).isEqualTo(-Errno.ENOENT);
        var file = Files.createFile(root.resolve("file"));
        assertThat(names.open(path(file))).isEqualTo(-Errno.ENOTDIR);
    }

    @Test
    void goesOnAfterAnInterruptAndEndsWithTheSystemsError() throws Exception {
        Files.createFile(root.resolve("a"));
        var lists = new AtomicInteger();
        calls.hook =
                (call, _) ->
                        !call.equals("list")
                                ? 0
                                : switch (lists.incrementAndGet()) {
                                    case 1 -> -Errno.EINTR;
                                    case 2 -> 0;
                                    default -> -Errno.EIO;
                                };
        assertThat(names.open(path(root))).isZero();
        assertThat(all()).containsExactlyInAnyOrder(".", "..", "a", "EIO");
    }

    @Test
    void aChannelListsNoFolder() {
        assertThat(new FolderNames(FileCalls.ofChannels(), 300).open(path(root)))
                .isEqualTo(-Errno.ENOSYS);
    }
}
