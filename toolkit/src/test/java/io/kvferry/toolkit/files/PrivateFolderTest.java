// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.files;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import static java.util.Objects.requireNonNull;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Files;
import java.nio.file.Path;

class PrivateFolderTest {
    private static final String SOMEBODY_ELSE = "12345";

    @TempDir Path temporary;

    private Path own;
    private Path above;
    private Path folder;

    @BeforeEach
    void makesThem() throws Exception {
        assumeTrue(
                temporary.getFileSystem().supportedFileAttributeViews().contains("unix"),
                "this file system has no modes");
        own = Files.createFile(temporary.resolve("own"));
        above = PrivateFolder.make(temporary.resolve("above"));
        folder = PrivateFolder.make(above.resolve("between").resolve("folder"));
    }

    @Test
    void acceptsWhatItMade() {
        assertAccepted(folder);
    }

    @ParameterizedTest
    @ValueSource(strings = {"0770", "0702", "1777"})
    void refusesAFolderThatOthersMayWriteTo(String mode) throws Exception {
        chmod(mode, folder);
        assertRefused(folder, "folder " + folder + " is writable", "chmod go-w on it");
    }

    /// Who may write there can put another folder in its place.
    @ParameterizedTest
    @ValueSource(strings = {"0777", "0770", "0757"})
    void refusesAFolderBelowOneThatOthersMayWriteTo(String mode) throws Exception {
        chmod(mode, above);
        assertRefused(folder, folder.toString(), "chmod +t on " + above);
    }

    /// As in `/tmp`, where nobody can rename what is not theirs.
    @Test
    void acceptsAFolderBelowOneWithAStickyBit() throws Exception {
        chmod("1777", above);
        assertAccepted(folder);
    }

    @Test
    void refusesAFolderOfAnotherUser() throws Exception {
        giveAway(folder);
        assertRefused(folder, "folder " + folder + " belongs to", "run chown on it");
    }

    @Test
    void refusesAFolderBelowOneOfAnotherUser() throws Exception {
        giveAway(above);
        assertRefused(folder, folder.toString(), "run chown on " + above);
    }

    /// Somebody else may have made it before.
    @Test
    void refusesAFolderBelowOneOfAnotherUserBelowOneWithAStickyBit() throws Exception {
        chmod("1777", above);
        giveAway(requireNonNull(folder.getParent()));
        assertRefused(folder, "belongs to", "run chown on " + folder.getParent());
    }

    @Test
    void followsLinksFirst() throws Exception {
        Path link = Files.createSymbolicLink(temporary.resolve("link"), folder);
        assertAccepted(link);
        assertThat(PrivateFolder.make(link)).isEqualTo(folder.toRealPath());
        assertThat(PrivateFolder.make(link.resolve("more")))
                .isEqualTo(folder.toRealPath().resolve("more"));
        chmod("0777", folder);
        assertRefused(link, "folder " + folder.toRealPath() + " is writable", "chmod go-w");
        chmod("0700", folder);
        chmod("0777", above);
        assertRefused(link, "may replace", "chmod +t on " + above.toRealPath());
    }

    @Test
    void seesThatEverybodyMayWriteAbove() throws Exception {
        assertThat(PrivateFolder.isBelowPublicFolder(Path.of("/absent/a/b"))).isFalse();
        chmod("1777", above);
        assertThat(PrivateFolder.isBelowPublicFolder(folder)).isTrue();
        assertThat(PrivateFolder.isBelowPublicFolder(above.resolve("absent").resolve("too")))
                .isTrue();
    }

    private void assertAccepted(Path given) {
        assertThatCode(() -> PrivateFolder.check(given, own)).doesNotThrowAnyException();
    }

    private void assertRefused(Path given, String what, String mend) {
        assertThatThrownBy(() -> PrivateFolder.check(given, own))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining(what)
                .hasMessageContaining(mend);
    }

    private static void chmod(String mode, Path path) throws Exception {
        assertThat(succeeds("chmod", mode, path.toString())).isTrue();
    }

    private static void giveAway(Path path) throws Exception {
        assumeTrue(
                succeeds("chown", SOMEBODY_ELSE, path.toString()),
                "only root may give a folder away; run as root to include this");
    }

    private static boolean succeeds(String... command) throws Exception {
        return new ProcessBuilder(command).start().waitFor() == 0;
    }
}
