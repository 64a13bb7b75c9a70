// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.secret;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/// A key whose holders show each other, by HMAC-SHA256, that they hold it.
///
/// Threading: immutable; any thread.
public final class TagKey {
    /// Bytes of a tag.
    public static final int TAG_BYTES = 32;

    private static final String ALGORITHM = "HmacSHA256";

    private final SecretKeySpec key;

    /// @param key at least one byte
    public TagKey(byte[] key) {
        this.key = new SecretKeySpec(key, ALGORITHM);
    }

    /// The tag of the parts. Each goes in with its length, so that no other division of the same
    /// bytes has the same tag.
    public byte[] tag(byte[]... parts) {
        var mac = mac();
        for (var part : parts) {
            mac.update(ByteBuffer.allocate(Integer.BYTES).putInt(0, part.length));
            mac.update(part);
        }
        return mac.doFinal();
    }

    /// Whether `tag` is that of the parts; takes as long for a wrong one as for the right one.
    public boolean verifies(byte[] tag, byte[]... parts) {
        return MessageDigest.isEqual(tag, tag(parts));
    }

    /// The plain HMAC of these bytes.
    byte[] macOf(byte[] bytes) {
        return mac().doFinal(bytes);
    }

    private Mac mac() {
        try {
            var mac = Mac.getInstance(ALGORITHM);
            mac.init(key);
            return mac;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every JDK has " + ALGORITHM, e);
        }
    }

    /// Without the key.
    @Override
    public String toString() {
        return "TagKey";
    }
}
