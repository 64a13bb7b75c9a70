// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.Set;

/// The beginning of a ZMTP 3 connection (RFC 23): greeting and READY, in the clear or under CURVE.
///
/// Threading: one thread.
final class ZmtpHandshake {
    private static final int GREETING_BYTES = 64;
    private static final int MECHANISM_AT = 12;
    private static final int MECHANISM_BYTES = 20;

    /// No command of a handshake comes near it.
    private static final int MOST_COMMAND_BYTES = 4096;

    private static final int MOST_IDENTITY = 255;

    /// Which socket this end is.
    enum Role {
        ROUTER(Set.of("DEALER", "REQ", "ROUTER")),
        DEALER(Set.of("ROUTER", "REP", "DEALER"));

        private final Set<String> partners;

        Role(Set<String> partners) {
            this.partners = partners;
        }
    }

    /// Says that exchanges may share the connection, see [ExchangeFrame]. A DEALER offers it, a
    /// ROUTER repeats it to a DEALER that did; others hear nothing of it.
    private static final String SHARES = "X-Kvferry-Exchanges";

    private static final byte[] SHARES_VERSION = {'1'};

    /// What this end is and wants.
    ///
    /// @param keys empty in the clear
    /// @param shares whether exchanges may share the connection
    /// @param identity of this end (ZMQ_IDENTITY), at most 255 characters of ASCII; empty for none
    record Terms(Role role, Optional<CurveKeys> keys, boolean shares, String identity) {
        Terms(Role role, Optional<CurveKeys> keys, boolean shares) {
            this(role, keys, shares, "");
        }

        Terms {
            if (identity.length() > MOST_IDENTITY || !US_ASCII.newEncoder().canEncode(identity)) {
                throw new IllegalArgumentException("no identity: " + identity);
            }
        }
    }

    /// What was agreed.
    ///
    /// @param curve encrypts the connection from now on; empty in the clear
    /// @param shared whether messages are those of [ExchangeFrame]
    /// @param identity that the peer gave itself, with `?` for what is not printable; empty for
    ///   none
    record Agreed(Optional<CurveSession> curve, boolean shared, String identity) {}

    private final ZmtpStream stream;
    private final Role role;
    private final boolean shares;
    private final Deadline deadline;
    private final String identity;
    private boolean peerShares;
    private String peerIdentity = "";

    private ZmtpHandshake(ZmtpStream stream, Terms terms, Deadline deadline) {
        this.stream = stream;
        this.role = terms.role();
        this.shares = terms.shares();
        this.identity = terms.identity();
        this.deadline = deadline;
    }

    /// Makes the handshake.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for a peer that breaks the protocol,
    ///   [ErrorCode#PEER_REFUSED] for one that is not let in or does not let in
    static Agreed run(ZmtpStream stream, Terms terms, Deadline deadline) throws IOException {
        var handshake = new ZmtpHandshake(stream, terms, deadline);
        var keys = terms.keys();
        handshake.greet(keys.isPresent());
        if (keys.isEmpty()) {
            handshake.ready();
            return new Agreed(Optional.empty(), handshake.shared(), handshake.peerIdentity);
        }
        var curve =
                terms.role() == Role.ROUTER
                        ? CurveSession.accept(handshake, keys.get())
                        : CurveSession.connect(handshake, keys.get());
        return new Agreed(Optional.of(curve), handshake.shared(), handshake.peerIdentity);
    }

    private void ready() throws IOException {
        if (role == Role.ROUTER && shares) { // the answer depends on what the peer offers
            check(expect("READY"));
            send("READY", metadata());
        } else {
            send("READY", metadata());
            check(expect("READY"));
        }
    }

    private boolean shared() {
        return shares && peerShares;
    }

    private void greet(boolean curve) throws IOException {
        var mechanism = curve ? "CURVE" : "NULL";
        var ours = new byte[GREETING_BYTES];
        ours[0] = (byte) 0xFF;
        ours[8] = 1;
        ours[9] = 0x7F;
        ours[10] = 3;
        System.arraycopy(mechanism.getBytes(US_ASCII), 0, ours, MECHANISM_AT, mechanism.length());
        ours[MECHANISM_AT + MECHANISM_BYTES] = (byte) (curve && role == Role.ROUTER ? 1 : 0);
        stream.write(ours);
        // Byte by byte what is known to come: who does not speak ZMTP may never send 64 bytes.
        if (stream.read(1, deadline)[0] != (byte) 0xFF) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "the peer does not speak ZMTP");
        }
        var signature = stream.read(10, deadline);
        if ((signature[8] & 1) == 0 || signature[9] < 3) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "the peer speaks ZMTP older than 3");
        }
        var rest = stream.read(GREETING_BYTES - 11, deadline);
        int length = 0;
        while (length < MECHANISM_BYTES && rest[1 + length] != 0) {
            length++;
        }
        var theirs = new String(rest, 1, length, US_ASCII);
        if (!theirs.equals(mechanism)) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED,
                    "the peer's mechanism is " + printable(theirs) + ", ours " + mechanism);
        }
    }

    /// Sends a command of the handshake.
    void send(String name, byte[] body) throws IOException {
        stream.write(ZmtpStream.COMMAND, command(name, body));
    }

    static byte[] command(String name, byte[] body) {
        return ByteBuffer.allocate(1 + name.length() + body.length)
                .put((byte) name.length())
                .put(name.getBytes(US_ASCII))
                .put(body)
                .array();
    }

    /// The body of the command that must come next.
    byte[] expect(String name) throws IOException {
        var frame = stream.frame(deadline, Duration.ofDays(1), MOST_COMMAND_BYTES, true);
        var command = frame.bytes();
        if (frame.command() && isNamed(command, name)) {
            return Arrays.copyOfRange(command, 1 + name.length(), command.length);
        }
        if (frame.command() && isNamed(command, "ERROR")) {
            var reason = new String(command, 6, command.length - 6, US_ASCII);
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED, "the peer refuses: " + printable(reason));
        }
        throw new KvFerryException(ErrorCode.PROTOCOL, "ZMTP handshake without " + name);
    }

    static boolean isNamed(byte[] command, String name) {
        int length = name.length();
        return command.length > length
                && command[0] == length
                && new String(command, 1, length, US_ASCII).equals(name);
    }

    /// The properties of this end; a ROUTER's are made after [#check].
    byte[] metadata() {
        var type = role.name().getBytes(US_ASCII);
        var buffer = ByteBuffer.allocate(128 + MOST_IDENTITY);
        property(buffer, "Socket-Type", type);
        property(buffer, "Identity", identity.getBytes(US_ASCII));
        if (role == Role.DEALER ? shares : shared()) {
            property(buffer, SHARES, SHARES_VERSION);
        }
        return Arrays.copyOf(buffer.array(), buffer.position());
    }

    private static void property(ByteBuffer buffer, String name, byte[] value) {
        buffer.put((byte) name.length()).put(name.getBytes(US_ASCII));
        buffer.putInt(value.length).put(value);
    }

    /// Checks the properties of the other end.
    void check(byte[] metadata) {
        var in = ByteBuffer.wrap(metadata);
        var type = "";
        while (in.hasRemaining()) {
            int nameLength = in.get() & 0xFF;
            if (in.remaining() < nameLength + Integer.BYTES) {
                throw new KvFerryException(ErrorCode.PROTOCOL, "ZMTP metadata cut off");
            }
            var name = new byte[nameLength];
            in.get(name);
            int length = in.getInt();
            if (length < 0 || length > in.remaining()) {
                throw new KvFerryException(ErrorCode.PROTOCOL, "ZMTP metadata cut off");
            }
            var value = new byte[length];
            in.get(value);
            var property = new String(name, US_ASCII);
            if (property.equalsIgnoreCase("Socket-Type")) {
                type = new String(value, US_ASCII);
            } else if (property.equalsIgnoreCase(SHARES)) {
                peerShares = Arrays.equals(value, SHARES_VERSION);
            } else if (property.equalsIgnoreCase("Identity") && length <= MOST_IDENTITY) {
                peerIdentity = new String(value, US_ASCII).replaceAll("[^\\x20-\\x7e]", "?");
            }
        }
        if (!role.partners.contains(type)) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "a " + printable(type) + " cannot talk to a " + role);
        }
    }

    private static String printable(String text) {
        var cut = text.length() > 100 ? text.substring(0, 100) : text;
        return "'" + cut.replaceAll("[^\\x20-\\x7e]", "?") + "'";
    }
}
