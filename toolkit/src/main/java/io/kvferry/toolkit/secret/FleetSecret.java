// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.secret;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Arrays;
import java.util.Optional;

/// The secret that all processes of a fleet share. Whoever knows it is trusted: the router by the
/// engines it routes to, an engine by the engines that it exchanges KV with.
///
/// It is the content of one file, named by the environment variable [#SETTING] or, before that, by
/// the system property [#PROPERTY], which the command line's `--secret-file` sets and which worker
/// processes inherit. The secret itself is never sent: each use derives a key of its own by
/// [#keyFor] or signs with [#tag].
///
/// Threading: immutable; any thread.
public final class FleetSecret {
    /// The environment variable that names the file.
    public static final String SETTING = "KVFERRY_SECRET_FILE";

    /// The system property that names the file; it goes before [#SETTING].
    public static final String PROPERTY = "kvferry.secret-file";

    /// Bytes of a key and of a tag.
    public static final int KEY_BYTES = 32;

    private static final int MIN_BYTES = 16;
    private static final int MAX_BYTES = 4096;

    private final byte[] secret;
    private final String warning;

    private FleetSecret(byte[] secret, String warning) {
        this.secret = secret;
        this.warning = warning;
    }

    /// The secret that this process is configured with; empty without the setting. Reads the file
    /// each time.
    ///
    /// @throws KvFerryException BAD_CONFIG when the file cannot be read or is no usable secret
    public static Optional<FleetSecret> configured() {
        return file().map(FleetSecret::read);
    }

    /// The file that the setting names.
    public static Optional<Path> file() {
        return Optional.ofNullable(System.getProperty(PROPERTY))
                .or(() -> Optional.ofNullable(System.getenv(SETTING)))
                .filter(name -> !name.isBlank())
                .map(Path::of);
    }

    /// Reads a secret. White space at the end of the file does not belong to it.
    ///
    /// @throws KvFerryException BAD_CONFIG when the file cannot be read, holds less than 16 bytes
    ///   or more than 4,096, or when others than its owner and group may write it
    public static FleetSecret read(Path file) {
        try {
            var permissions = permissions(file);
            if (permissions.contains("others may write")) {
                throw bad(file + ": every user of this host may change it; chmod 600 it");
            }
            byte[] content;
            try (var in = Files.newInputStream(file)) {
                content = in.readNBytes(MAX_BYTES + 1);
            }
            return of(file, content, permissions);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    FileTrouble.describe("cannot read the shared secret " + file, e),
                    e);
        }
    }

    private static FleetSecret of(Path file, byte[] content, String warning) {
        int end = content.length;
        while (end > 0 && Character.isWhitespace(content[end - 1])) {
            end--;
        }
        if (end < MIN_BYTES || end > MAX_BYTES) {
            throw bad(
                    file
                            + ": a secret has 16 to 4096 bytes, this file "
                            + (end > MAX_BYTES ? "more" : Integer.toString(end))
                            + "; `openssl rand -hex 32` makes one");
        }
        return new FleetSecret(Arrays.copyOf(content, end), warning);
    }

    private static String permissions(Path file) throws IOException {
        if (!file.getFileSystem().supportedFileAttributeViews().contains("posix")) {
            return "";
        }
        var granted = Files.getPosixFilePermissions(file);
        if (granted.contains(PosixFilePermission.OTHERS_WRITE)) {
            return "others may write";
        }
        return granted.contains(PosixFilePermission.OTHERS_READ)
                ? "every user of this host may read " + file + "; chmod 600 it"
                : "";
    }

    private static KvFerryException bad(String message) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, message);
    }

    /// What the operator should know about the file, empty when it is private.
    public String warning() {
        return warning;
    }

    /// A key of [#KEY_BYTES] for one purpose, equal in every process of the fleet and useless for
    /// any other purpose.
    public byte[] keyFor(String purpose) {
        return new TagKey(secret).macOf(utf8("kvferry key " + purpose));
    }

    /// The tag of the parts by the key of `purpose`, see [TagKey#tag].
    public byte[] tag(String purpose, byte[]... parts) {
        return new TagKey(keyFor(purpose)).tag(parts);
    }

    /// Whether `tag` is that of the parts; takes as long for a wrong one as for the right one.
    public boolean verifies(byte[] tag, String purpose, byte[]... parts) {
        return new TagKey(keyFor(purpose)).verifies(tag, parts);
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /// Without the secret.
    @Override
    public String toString() {
        return "FleetSecret";
    }
}
