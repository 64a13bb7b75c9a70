// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/// Who may read and write what a store keeps.
class AccessTest {
    @TempDir Path folder;

    @ParameterizedTest
    @ValueSource(strings = {"posix", "channel"})
    void makesFilesAndFoldersForItsUserAlone(String kind) throws Exception {
        FileCalls calls = kind.equals("posix") ? FileCalls.ofPlatform() : FileCalls.ofChannels();
        Path root = folder.resolve("parent").resolve("root");
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            new StoreDriver(store).save(BlockKey.of("k"), StoreDriver.block(1, 5000));
        }
        try (var all = Files.walk(root)) {
            for (Path path : all.toList()) {
                assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(path)))
                        .as("%s", path)
                        .isEqualTo(Files.isDirectory(path) ? "rwx------" : "rw-------");
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"rwxrwx---", "rwxr-xrwx", "rwxrwxrwx"})
    void refusesARootThatOthersMayWriteTo(String mode) throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Files.setPosixFilePermissions(root, PosixFilePermissions.fromString(mode));
        var config = StoreDriver.config(root);
        assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining(mode)
                .hasMessageContaining("chmod");
        BlockStore.open(config.withCheckFolder(false), StoreListener.NONE).close();
    }

    /// Who may write there can put a folder of his own blocks in its place.
    @Test
    void refusesARootBelowAFolderThatOthersMayWriteTo() throws Exception {
        Path above = Files.createDirectory(folder.resolve("above"));
        Files.setPosixFilePermissions(above, PosixFilePermissions.fromString("rwxrwxrwx"));
        var config = StoreDriver.config(above.resolve("parent").resolve("root"));
        assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("chmod +t on " + above.toRealPath());
        BlockStore.open(config.withCheckFolder(false), StoreListener.NONE).close();
    }

    /// From when it is open the store goes on where the link led, wherever it leads now.
    @Test
    void takesARootThatIsALinkToAPrivateFolder() throws Exception {
        Path place = folder.resolve("place");
        BlockStore.open(StoreDriver.config(place), StoreListener.NONE).close();
        Path link = Files.createSymbolicLink(folder.resolve("link"), place);
        var config = StoreDriver.config(link);
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            Files.delete(link);
            Files.createSymbolicLink(link, Files.createDirectory(folder.resolve("elsewhere")));
            new StoreDriver(store).save(BlockKey.of("k"), StoreDriver.block(1, 5000));
        }
        assertThat(StoreDriver.file(StoreDriver.config(place), BlockKey.of("k"))).exists();
        assertThat(folder.resolve("elsewhere")).isEmptyDirectory();
    }

    /// What one store of this process does not mind is no answer for another.
    @Test
    void refusesARootThatOthersMayWriteToAlthoughAnotherStoreHasItOpen() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Files.setPosixFilePermissions(root, PosixFilePermissions.fromString("rwxrwxrwx"));
        var config = StoreDriver.config(root);
        try (var _ = BlockStore.open(config.withCheckFolder(false), StoreListener.NONE)) {
            assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE).close())
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("chmod");
        }
    }

    @Test
    void refusesARootOfAnotherUser() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        boolean changed = root.toFile().exists() && chown(root);
        org.junit.jupiter.api.Assumptions.assumeTrue(
                changed, "only root may give a folder away; run as root to include this");
        assertThatThrownBy(() -> BlockStore.open(StoreDriver.config(root), StoreListener.NONE))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("chown");
    }

    private static boolean chown(Path path) throws Exception {
        return new ProcessBuilder("chown", "12345", path.toString()).start().waitFor() == 0;
    }

    @Test
    void writesNoPartOfTheNamespaceInClear() throws Exception {
        var config = StoreConfig.of(folder.resolve("root"), "model-name salt-of-the-tenant");
        try (var store = BlockStore.open(config.withReserveBytes(0), StoreListener.NONE)) {
            new StoreDriver(store).save(BlockKey.of("k"), StoreDriver.block(1, 100));
        }
        try (var all = Files.walk(config.root())) {
            for (Path file : all.filter(Files::isRegularFile).toList()) {
                assertThat(Files.readString(file, StandardCharsets.ISO_8859_1))
                        .doesNotContain("salt-of-the-tenant")
                        .doesNotContain("model-name");
            }
        }
    }
}
