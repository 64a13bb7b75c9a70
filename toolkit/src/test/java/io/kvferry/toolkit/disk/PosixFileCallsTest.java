// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;

class PosixFileCallsTest {
    @TempDir Path root;

    @BeforeEach
    void needsLinux() {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform() instanceof PosixFileCalls, "needs libc of 64-bit Linux");
    }

    /// Those of a file system that can neither rename without replacing nor link.
    private static PosixFileCalls without(int renameErrno, int linkErrno) {
        var real = new PosixFileCalls.LibcNaming();
        return new PosixFileCalls(
                new PosixFileCalls.Naming() {
                    @Override
                    public int rename(MemorySegment from, MemorySegment to, int flags) {
                        return flags == 0 ? real.rename(from, to, flags) : -renameErrno;
                    }

                    @Override
                    public int link(MemorySegment from, MemorySegment to) {
                        return -linkErrno;
                    }
                });
    }

    private MemorySegment file(String name, String content) throws IOException {
        Files.writeString(root.resolve(name), content);
        return path(name);
    }

    private MemorySegment path(String name) {
        return PathText.of(Arena.ofAuto(), root.resolve(name));
    }

    @ParameterizedTest
    @CsvSource({
        Errno.EINVAL + "," + Errno.EPERM,
        Errno.EINVAL + "," + Errno.ENOSYS,
        Errno.EINVAL + "," + Errno.EOPNOTSUPP,
        Errno.ENOSYS + "," + Errno.EPERM
    })
    void namesAFileWhereThereAreNoHardLinksUnlessTheNameIsTaken(int rename, int link)
            throws IOException {
        var calls = without(rename, link);
        assertThat(calls.publish(file("temp", "first"), path("block"))).isZero();
        assertThat(root.resolve("temp")).doesNotExist();
        assertThat(root.resolve("block")).hasContent("first");

        assertThat(calls.publish(file("temp", "second"), path("block"))).isEqualTo(-Errno.EEXIST);
        assertThat(root.resolve("temp")).hasContent("second");
        assertThat(root.resolve("block")).hasContent("first");

        Files.createSymbolicLink(root.resolve("link"), root.resolve("nothing"));
        assertThat(calls.publish(path("temp"), path("link"))).isEqualTo(-Errno.EEXIST);
        assertThat(calls.publish(path("temp"), path("no/block"))).isEqualTo(-Errno.ENOENT);
    }

    /// Such as a full medium.
    @ParameterizedTest
    @ValueSource(ints = {Errno.ENOSPC, Errno.EROFS, Errno.EIO, Errno.EEXIST})
    void saysWhyItCouldNotLink(int errno) throws IOException {
        var calls = without(Errno.EINVAL, errno);
        assertThat(calls.publish(file("temp", "first"), path("block"))).isEqualTo(-errno);
        assertThat(root.resolve("temp")).hasContent("first");
        assertThat(root.resolve("block")).doesNotExist();
    }
}
