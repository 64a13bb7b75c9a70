// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;

import java.security.GeneralSecurityException;
import java.util.HexFormat;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/// The shared secret by which the processes of a fleet authenticate each other's blocks, or none. A
/// process that can write to the folder but does not know the secret cannot create a block that
/// passes the check.
///
/// Threading: immutable.
public final class FleetKey {
    /// Blocks carry a checksum against accidents only.
    public static final FleetKey NONE = new FleetKey(null, "");

    private static final String ALGORITHM = "HmacSHA256";

    private final @Nullable SecretKeySpec secret;
    private final String id;

    private FleetKey(@Nullable SecretKeySpec secret, String id) {
        this.secret = secret;
        this.id = id;
    }

    /// Derives two keys: one for the HMAC of blocks, and one for the id from which the names of
    /// their files are made.
    public static FleetKey of(FleetSecret secret) {
        return new FleetKey(
                new SecretKeySpec(secret.keyFor("disk block"), ALGORITHM),
                HexFormat.of().formatHex(secret.keyFor("disk folder")));
    }

    /// Whether there is a secret.
    public boolean present() {
        return secret != null;
    }

    /// Identifies the key without revealing it; empty for none.
    public String id() {
        return id;
    }

    /// A new HMAC instance with this key, to be used by one thread; null for none.
    @Nullable Mac newMac() {
        if (secret == null) {
            return null;
        }
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(secret);
            return mac;
        } catch (GeneralSecurityException e) {
            throw new AssertionError("every Java platform has " + ALGORITHM, e);
        }
    }
}
