// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.toolkit.secret.TagKey;

import java.nio.ByteBuffer;
import java.security.SecureRandom;

/// Proves to each end of a connection that the other one knows a grant, without revealing it. Each
/// end draws a random number, and both are tagged with the grant as the key. A process that listens
/// on the port of a former receiver learns nothing, and recorded messages cannot be replayed.
///
/// Threading: immutable; any thread.
public final class GrantProof {
    public static final int NONCE_BYTES = 32;
    public static final int PROOF_BYTES = TagKey.TAG_BYTES;
    private static final byte[] NAME = "kvferry plane name".getBytes(US_ASCII);
    private static final byte[] SENDER = "kvferry plane sender".getBytes(US_ASCII);
    private static final byte[] RECEIVER = "kvferry plane receiver".getBytes(US_ASCII);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final TagKey key;
    private final Name name;

    /// Which grant is meant. It gives no right, and does not tell the grant.
    public record Name(long high, long low) {}

    public GrantProof(Grant grant) {
        var bytes = ByteBuffer.allocate(2 * Long.BYTES).putLong(grant.high()).putLong(grant.low());
        this.key = new TagKey(bytes.array());
        var tag = ByteBuffer.wrap(key.tag(NAME));
        this.name = new Name(tag.getLong(), tag.getLong());
    }

    public static byte[] nonce() {
        var nonce = new byte[NONCE_BYTES];
        RANDOM.nextBytes(nonce);
        return nonce;
    }

    public Name name() {
        return name;
    }

    public byte[] ofSender(byte[] senders, byte[] receivers) {
        return key.tag(SENDER, senders, receivers);
    }

    public byte[] ofReceiver(byte[] senders, byte[] receivers) {
        return key.tag(RECEIVER, senders, receivers);
    }

    public boolean isOfSender(byte[] proof, byte[] senders, byte[] receivers) {
        return key.verifies(proof, SENDER, senders, receivers);
    }

    public boolean isOfReceiver(byte[] proof, byte[] senders, byte[] receivers) {
        return key.verifies(proof, RECEIVER, senders, receivers);
    }
}
