// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.HexFormat;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/// The secret that the processes of a fleet share, with which they recognise each other's blocks,
/// or none. Who can write to the folder but does not know the secret cannot make a block that is
/// loaded.
///
/// Threading: immutable.
public final class FleetKey {
    /// Blocks carry a checksum against accidents only.
    public static final FleetKey NONE = new FleetKey(null, "");

    /// Fewest bytes of a key file.
    public static final int LEAST_BYTES = 32;

    private static final String ALGORITHM = "HmacSHA256";

    private final @Nullable SecretKeySpec secret;
    private final String id;

    private FleetKey(@Nullable SecretKeySpec secret, String id) {
        this.secret = secret;
        this.id = id;
    }

    /// The key of a file; all of its bytes count.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when the file cannot be read or is shorter
    ///   than [#LEAST_BYTES]
    public static FleetKey ofFile(Path file) {
        try {
            byte[] bytes = Files.readAllBytes(file);
            if (bytes.length < LEAST_BYTES) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "key file "
                                + file
                                + " has "
                                + bytes.length
                                + " bytes; it needs at least "
                                + LEAST_BYTES
                                + " random ones (head -c 32 /dev/urandom)");
            }
            var all = new SecretKeySpec(bytes, ALGORITHM);
            // Two keys of their own: one seals, the other only names the folder.
            var seal = new SecretKeySpec(digest(all, "kvferry block seal"), ALGORITHM);
            return new FleetKey(
                    seal, HexFormat.of().formatHex(digest(all, "kvferry block folder")));
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, FileTrouble.describe("cannot read the key file", e), e);
        }
    }

    boolean present() {
        return secret != null;
    }

    /// Tells keys apart without telling them; empty for none.
    String id() {
        return id;
    }

    /// A digest under this key, for one thread; null for none.
    @Nullable Mac newMac() {
        return secret == null ? null : mac(secret);
    }

    private static byte[] digest(SecretKeySpec key, String text) {
        return mac(key).doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static Mac mac(SecretKeySpec key) {
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(key);
            return mac;
        } catch (GeneralSecurityException e) {
            throw new AssertionError("every Java platform has HmacSHA256", e);
        }
    }
}
