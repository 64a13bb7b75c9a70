// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

class SharedFolderTest {
    private static final int NOBODY = 65_534;

    @TempDir private Path folder;

    private SharedFolder shared() {
        return new SharedFolder(folder, "0123456789abcdef0123456789abcdef");
    }

    @Test
    void filesAreForTheirUserOnly() throws IOException {
        SharedFolder.create(shared().control()).close();
        assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(shared().control())))
                .isEqualTo("rw-------");
        SharedFolder.open(shared().control()).close();
    }

    /// Another user could have put anything there under the incarnation that a peer announces.
    @Test
    void aFileOfAnotherUserIsNotOpened() throws IOException {
        assumeTrue(
                Files.getAttribute(Path.of("/proc/self/stat"), "unix:uid").equals(0),
                "needs the right to give files away (root)");
        Path control = shared().control();
        SharedFolder.create(control).close();
        Files.setAttribute(control, "unix:uid", NOBODY);
        assertThatThrownBy(() -> SharedFolder.open(control))
                .isInstanceOf(IOException.class)
                .hasMessageContaining("another user");
        assertThat(SharedPeer.attach(folder, "0123456789abcdef0123456789abcdef", false)).isEmpty();
    }

    @Test
    void aLinkIsNotFollowed() throws IOException {
        Path elsewhere = Files.createFile(folder.resolve("elsewhere"));
        Files.createSymbolicLink(shared().control(), elsewhere);
        assertThatThrownBy(() -> SharedFolder.open(shared().control()))
                .isInstanceOf(IOException.class);
    }
}
