// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.files;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;

class FileTroubleTest {
    @TempDir Path folder;

    /// A call on real files that is expected to fail.
    private interface Call {
        Object run() throws IOException;
    }

    private static String told(String what, Call call) {
        return FileTrouble.describe(what, catchThrowableOfType(IOException.class, call::run));
    }

    @Test
    void saysThatAFileIsMissing() {
        Path file = folder.resolve("absent");
        assertThat(told("cannot read " + file, () -> Files.readString(file)))
                .isEqualTo(
                        "cannot read "
                                + file
                                + ": there is no such file or folder; check the path");
    }

    @Test
    void namesTheFileThatTheActionDoesNotName() {
        Path file = folder.resolve("absent");
        assertThat(told("cannot start", () -> Files.readString(file)))
                .startsWith("cannot start: " + file + ": there is no such file");
    }

    @Test
    void tellsFoldersFromFiles() throws IOException {
        Path file = Files.writeString(folder.resolve("file"), "x");
        assertThat(told("cannot read " + folder, () -> Files.readString(folder)))
                .endsWith(": it is a folder; name a file");
        assertThat(told("cannot list " + file, () -> Files.newDirectoryStream(file)))
                .endsWith(": it is not a folder; name a folder");
        assertThat(told("cannot use " + file, () -> Files.createDirectories(file)))
                .contains("something else of that name is there");
        assertThat(told("cannot use " + file, () -> Files.readString(file.resolve("in-it"))))
                .contains("a part of the path is a file where a folder should be");
    }

    @Test
    void saysThatBytesAreNoText() throws IOException {
        Path file = Files.write(folder.resolve("bytes"), new byte[] {(byte) 0xff, (byte) 0xfe});
        assertThat(told("cannot read " + file, () -> Files.readString(file)))
                .endsWith(": it is not UTF-8 text");
    }

    @Test
    void saysWhoHasNoPermission() {
        assertThat(FileTrouble.describe("cannot read /x", new AccessDeniedException("/x")))
                .isEqualTo(
                        "cannot read /x: user "
                                + System.getProperty("user.name")
                                + " has no permission; change its owner or mode");
    }

    @ParameterizedTest
    @CsvSource({
        "No space left on device, the file system is full",
        "Disk quota exceeded, the file system is full",
        "Read-only file system, mount it writable",
        "Too many open files, ulimit",
        "Input/output error, the system's log",
        "Something of tomorrow, Something of tomorrow",
    })
    void saysHowToMendWhatTheSystemReports(String reason, String words) {
        assertThat(FileTrouble.describe("cannot write /x", new IOException(reason)))
                .startsWith("cannot write /x: ")
                .contains(words);
        assertThat(
                        FileTrouble.describe(
                                "cannot write /x", new FileSystemException("/x", null, reason)))
                .contains(words);
    }
}
