// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import java.io.IOException;
import java.security.SecureRandom;
import java.util.Arrays;

/// The first bytes of a connection to a data or handshake port where the fleet has a secret: each
/// end proves that it knows it, before anything else is read or said.
///
/// The client sends `"KVFERRY1" | 32 random bytes`, the server answers `32 random bytes | tag`, the
/// client sends its `tag`. A tag is an HMAC-SHA256 over who says it, the kind of port, and both
/// random numbers, so that none can be used twice. What follows is neither encrypted nor signed.
public final class PeerAuth {
    /// Which port it is, so that an answer of one is of no use at the other.
    public enum Kind {
        DATA,
        HANDSHAKE
    }

    private static final byte[] MAGIC = "KVFERRY1".getBytes(US_ASCII);
    private static final int NONCE_BYTES = 32;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final FleetSecret secret;
    private final Kind kind;

    /// The byte stream to the peer. Both calls have a time limit.
    public interface Bytes {
        byte[] read(int count) throws IOException;

        void write(byte[] bytes) throws IOException;
    }

    public PeerAuth(FleetSecret secret, Kind kind) {
        this.secret = secret;
        this.kind = kind;
    }

    /// The server's side.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_REFUSED] for a client without the secret, to which
    ///   nothing was said that it does not know
    public void accept(Bytes peer) throws IOException {
        byte[] hello = peer.read(MAGIC.length + NONCE_BYTES);
        if (!Arrays.equals(hello, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
            throw refused("a client that does not know of the fleet's secret");
        }
        byte[] theirs = Arrays.copyOfRange(hello, MAGIC.length, hello.length);
        byte[] ours = nonce();
        peer.write(concat(ours, tag("server", theirs, ours)));
        byte[] proof = peer.read(FleetSecret.KEY_BYTES);
        if (!secret.verifies(proof, purpose("client"), theirs, ours)) {
            throw refused("a client with another secret");
        }
    }

    /// The client's side.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_REFUSED] for a server without the secret
    public void connect(Bytes peer) throws IOException {
        byte[] ours = nonce();
        peer.write(concat(MAGIC, ours));
        byte[] answer = peer.read(NONCE_BYTES + FleetSecret.KEY_BYTES);
        byte[] theirs = Arrays.copyOf(answer, NONCE_BYTES);
        byte[] proof = Arrays.copyOfRange(answer, NONCE_BYTES, answer.length);
        if (!secret.verifies(proof, purpose("server"), ours, theirs)) {
            throw refused("a server with another secret");
        }
        peer.write(tag("client", ours, theirs));
    }

    private byte[] tag(String who, byte[] clientNonce, byte[] serverNonce) {
        return secret.tag(purpose(who), clientNonce, serverNonce);
    }

    private String purpose(String who) {
        return "mooncake " + kind.name() + " " + who;
    }

    private static byte[] nonce() {
        var nonce = new byte[NONCE_BYTES];
        RANDOM.nextBytes(nonce);
        return nonce;
    }

    private static byte[] concat(byte[] first, byte[] second) {
        byte[] all = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, all, first.length, second.length);
        return all;
    }

    private static KvFerryException refused(String who) {
        return new KvFerryException(ErrorCode.PEER_REFUSED, who + " is not let in");
    }
}
