// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.neilalexander.jnacl.crypto.curve25519xsalsa20poly1305;
import com.neilalexander.jnacl.crypto.xsalsa20poly1305;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;

/// CurveZMQ (RFC 26): the handshake by which both ends prove who they are, and the encryption of
/// what follows. The names C, S, C', S' are the RFC's: long-term and short-term keys of client and
/// server.
///
/// Threading: one thread encrypts, one decrypts.
final class CurveSession {
    private static final int KEY = 32;

    /// Zeros that NaCl wants before a plain text, and before a box.
    private static final int ZERO = 32;

    private static final int BOX_ZERO = 16;
    private static final int COOKIE = 96;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final byte[] shared;
    private final byte[] sendPrefix;
    private final byte[] receivePrefix;
    private long sent;
    private long received;

    private CurveSession(byte[] shared, boolean server, long sent, long received) {
        this.shared = shared;
        this.sendPrefix = ("CurveZMQMESSAGE" + (server ? "S" : "C")).getBytes(US_ASCII);
        this.receivePrefix = ("CurveZMQMESSAGE" + (server ? "C" : "S")).getBytes(US_ASCII);
        this.sent = sent;
        this.received = received;
    }

    /// A short-term pair of keys.
    private record KeyPair(byte[] open, byte[] secret) {
        static KeyPair draw() {
            var secret = random(KEY);
            return new KeyPair(publicKey(secret), secret);
        }
    }

    static byte[] publicKey(byte[] secret) {
        var open = new byte[KEY];
        curve25519xsalsa20poly1305.crypto_box_getpublickey(open, secret);
        return open;
    }

    /// The server's side.
    static CurveSession accept(ZmtpHandshake handshake, CurveKeys keys) throws IOException {
        var secret = Z85.decode(keys.secretKey());
        var hello = ByteBuffer.wrap(sized(handshake.expect("HELLO"), 194));
        if (hello.get() != 1 || hello.get() != 0) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE of another version");
        }
        var clientShort = bytes(hello.position(74), KEY);
        long helloNonce = hello.getLong();
        open(bytes(hello, 80), nonce("CurveZMQHELLO---", helloNonce), clientShort, secret);

        var serverShort = KeyPair.draw();
        // Nobody but us reads the cookie, and the connection keeps what it would carry.
        var cookie = random(COOKIE);
        var welcomeNonce = random(16);
        var welcome =
                seal(
                        concat(serverShort.open(), cookie),
                        concat("WELCOME-".getBytes(US_ASCII), welcomeNonce),
                        clientShort,
                        secret);
        handshake.send("WELCOME", concat(welcomeNonce, welcome));

        var initiate = ByteBuffer.wrap(handshake.expect("INITIATE"));
        if (initiate.remaining() < COOKIE + 8 + 16 + KEY + 96) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE INITIATE cut off");
        }
        if (!MessageDigest.isEqual(bytes(initiate, COOKIE), cookie)) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE INITIATE with another cookie");
        }
        long initiateNonce = initiate.getLong();
        var content =
                ByteBuffer.wrap(
                        open(
                                bytes(initiate, initiate.remaining()),
                                nonce("CurveZMQINITIATE", initiateNonce),
                                clientShort,
                                serverShort.secret()));
        var client = bytes(content, KEY);
        var vouchNonce = concat("VOUCH---".getBytes(US_ASCII), bytes(content, 16));
        var vouch = open(bytes(content, 80), vouchNonce, client, serverShort.secret());
        var expected = concat(clientShort, publicKey(secret));
        if (!MessageDigest.isEqual(vouch, expected)) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE vouch for something else");
        }
        if (!keys.serves(client)) {
            handshake.send("ERROR", concat(new byte[] {3}, "400".getBytes(US_ASCII)));
            throw new KvFerryException(ErrorCode.PEER_REFUSED, "unknown CURVE key");
        }
        handshake.check(bytes(content, content.remaining()));

        var shared = shared(clientShort, serverShort.secret());
        var ready = seal(handshake.metadata(), nonce("CurveZMQREADY---", 1), shared);
        handshake.send("READY", concat(number(1), ready));
        return new CurveSession(shared, true, 1, initiateNonce);
    }

    /// The client's side.
    static CurveSession connect(ZmtpHandshake handshake, CurveKeys keys) throws IOException {
        var secret = Z85.decode(keys.secretKey());
        var server = Z85.decode(keys.serverKey());
        var clientShort = KeyPair.draw();
        var zeros = seal(new byte[64], nonce("CurveZMQHELLO---", 1), server, clientShort.secret());
        handshake.send(
                "HELLO",
                ByteBuffer.allocate(194)
                        .put((byte) 1)
                        .put((byte) 0)
                        .position(74)
                        .put(clientShort.open())
                        .putLong(1)
                        .put(zeros)
                        .array());

        var welcome = ByteBuffer.wrap(sized(handshake.expect("WELCOME"), 160));
        var welcomeNonce = concat("WELCOME-".getBytes(US_ASCII), bytes(welcome, 16));
        var content =
                ByteBuffer.wrap(
                        open(bytes(welcome, 144), welcomeNonce, server, clientShort.secret()));
        var serverShort = bytes(content, KEY);
        var cookie = bytes(content, COOKIE);

        var vouchNonce = random(16);
        var vouch =
                seal(
                        concat(clientShort.open(), server),
                        concat("VOUCH---".getBytes(US_ASCII), vouchNonce),
                        serverShort,
                        secret);
        var shared = shared(serverShort, clientShort.secret());
        var initiate =
                seal(
                        concat(publicKey(secret), vouchNonce, vouch, handshake.metadata()),
                        nonce("CurveZMQINITIATE", 2),
                        shared);
        handshake.send("INITIATE", concat(cookie, number(2), initiate));

        var ready = ByteBuffer.wrap(handshake.expect("READY"));
        if (ready.remaining() < 8 + 16) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE READY cut off");
        }
        long readyNonce = ready.getLong();
        handshake.check(
                open(
                        bytes(ready, ready.remaining()),
                        nonce("CurveZMQREADY---", readyNonce),
                        shared));
        return new CurveSession(shared, false, 2, readyNonce);
    }

    /// A frame as it travels.
    byte[] encrypt(int flags, byte[] body) {
        sent++;
        var plain = new byte[ZERO + 1 + body.length];
        plain[ZERO] = (byte) ((flags & ZmtpStream.MORE) | ((flags & ZmtpStream.COMMAND) >> 1));
        System.arraycopy(body, 0, plain, ZERO + 1, body.length);
        var box = new byte[plain.length];
        curve25519xsalsa20poly1305.crypto_box_afternm(
                box, plain, plain.length, nonce(sendPrefix, sent), shared);
        return ByteBuffer.allocate(8 + 8 + box.length - BOX_ZERO)
                .put((byte) 7)
                .put("MESSAGE".getBytes(US_ASCII))
                .putLong(sent)
                .put(box, BOX_ZERO, box.length - BOX_ZERO)
                .array();
    }

    /// What such a frame carries.
    ZmtpStream.Frame decrypt(byte[] message) {
        if (message.length < 33 || !ZmtpHandshake.isNamed(message, "MESSAGE")) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "not a CURVE message");
        }
        long number = ByteBuffer.wrap(message).getLong(8);
        if (Long.compareUnsigned(number, received) <= 0) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "CURVE message out of order");
        }
        received = number;
        var plain =
                open(
                        Arrays.copyOfRange(message, 16, message.length),
                        nonce(receivePrefix, number),
                        shared);
        int flags = plain[0] & 0xFF;
        return new ZmtpStream.Frame(
                (flags & 1) | ((flags & 2) << 1), Arrays.copyOfRange(plain, 1, plain.length));
    }

    private static byte[] shared(byte[] theirs, byte[] secret) {
        var key = new byte[KEY];
        curve25519xsalsa20poly1305.crypto_box_beforenm(key, theirs, secret);
        return key;
    }

    private static byte[] seal(byte[] plain, byte[] nonce, byte[] theirs, byte[] secret) {
        return seal(plain, nonce, shared(theirs, secret));
    }

    private static byte[] seal(byte[] plain, byte[] nonce, byte[] key) {
        var padded = new byte[ZERO + plain.length];
        System.arraycopy(plain, 0, padded, ZERO, plain.length);
        var box = new byte[padded.length];
        curve25519xsalsa20poly1305.crypto_box_afternm(box, padded, padded.length, nonce, key);
        return Arrays.copyOfRange(box, BOX_ZERO, box.length);
    }

    private static byte[] open(byte[] box, byte[] nonce, byte[] theirs, byte[] secret) {
        return open(box, nonce, shared(theirs, secret));
    }

    private static byte[] open(byte[] box, byte[] nonce, byte[] key) {
        var padded = new byte[BOX_ZERO + box.length];
        System.arraycopy(box, 0, padded, BOX_ZERO, box.length);
        var plain = new byte[padded.length];
        int result =
                box.length < BOX_ZERO
                        ? -1
                        : xsalsa20poly1305.crypto_secretbox_open(
                                plain, padded, padded.length, nonce, key);
        if (result != 0) {
            throw new KvFerryException(ErrorCode.PEER_REFUSED, "a CURVE box of another key");
        }
        return Arrays.copyOfRange(plain, ZERO, plain.length);
    }

    private static byte[] nonce(String prefix, long number) {
        return nonce(prefix.getBytes(US_ASCII), number);
    }

    private static byte[] nonce(byte[] prefix, long number) {
        return ByteBuffer.allocate(24).put(prefix).putLong(number).array();
    }

    private static byte[] number(long number) {
        return ByteBuffer.allocate(8).putLong(number).array();
    }

    private static byte[] random(int bytes) {
        var random = new byte[bytes];
        RANDOM.nextBytes(random);
        return random;
    }

    private static byte[] bytes(ByteBuffer from, int count) {
        var bytes = new byte[count];
        from.get(bytes);
        return bytes;
    }

    private static byte[] sized(byte[] body, int bytes) {
        if (body.length != bytes) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "CURVE command of " + body.length + " bytes");
        }
        return body;
    }

    private static byte[] concat(byte[]... parts) {
        var all = ByteBuffer.allocate(Arrays.stream(parts).mapToInt(part -> part.length).sum());
        for (var part : parts) {
            all.put(part);
        }
        return all.array();
    }
}
