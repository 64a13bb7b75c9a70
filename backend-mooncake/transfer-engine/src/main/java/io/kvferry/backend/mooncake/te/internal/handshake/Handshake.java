// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.databind.node.ObjectNode;

import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.LongPredicate;

/// DataFrames of Mooncake's handshake port: `u64 LE length | type byte | JSON text`, the type
/// counted in the length.
///
/// A peer of the old protocol sends no type byte; its payload starts with `{` and means
/// [#CONNECTION].
public final class Handshake {
    static final int CONNECTION = 0;
    public static final int METADATA = 1;
    public static final int NOTIFY = 2;
    static final int PROBE = 3;

    /// Type of a frame without type byte.
    static final int OLD = -1;

    private Handshake() {}

    public record Message(int type, byte[] json) {
        public String text() {
            return new String(json, StandardCharsets.UTF_8);
        }
    }

    static byte[] encode(Message message) {
        boolean typed = message.type() != OLD;
        int length = message.json().length + (typed ? 1 : 0);
        ByteBuffer frame =
                ByteBuffer.allocate(8 + length).order(ByteOrder.LITTLE_ENDIAN).putLong(length);
        if (typed) {
            frame.put((byte) message.type());
        }
        return frame.put(message.json()).array();
    }

    static void write(Socket socket, Message message) throws IOException {
        var out = new DataOutputStream(socket.getOutputStream());
        out.write(encode(message));
        out.flush();
    }

    /// Reads one frame. Only as much memory is taken as bytes arrive, whatever the length claims.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for a frame that breaks the bounds
    static Message read(Socket socket, int mostBytes, Deadline deadline) throws IOException {
        return read(socket, mostBytes, deadline, _ -> true);
    }

    /// @param room asked before each piece of memory, with its bytes
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for a frame that breaks the bounds,
    ///   [ErrorCode#NO_MEMORY] where there is no room
    static Message read(Socket socket, int mostBytes, Deadline deadline, LongPredicate room)
            throws IOException {
        long length =
                ByteBuffer.wrap(readFully(socket, 8, deadline, _ -> true))
                        .order(ByteOrder.LITTLE_ENDIAN)
                        .getLong();
        if (length <= 0 || length > mostBytes) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "handshake frame of "
                            + Long.toUnsignedString(length)
                            + " bytes; allowed are 1 to "
                            + mostBytes);
        }
        byte[] payload = readFully(socket, (int) length, deadline, room);
        if (payload[0] >= CONNECTION && payload[0] <= PROBE) {
            return new Message(payload[0], Arrays.copyOfRange(payload, 1, payload.length));
        }
        if (payload[0] == '{') {
            return new Message(OLD, payload);
        }
        throw new KvFerryException(
                ErrorCode.PROTOCOL, "handshake frame of unknown type " + payload[0]);
    }

    private static byte[] readFully(
            Socket socket, int length, Deadline deadline, LongPredicate room) throws IOException {
        InputStream in = socket.getInputStream();
        byte[] bytes = new byte[Math.min(length, 8192)];
        int filled = 0;
        while (filled < length) {
            if (filled == bytes.length) {
                if (!room.test(Math.min(length, bytes.length * 2) - bytes.length)) {
                    throw new KvFerryException(
                            ErrorCode.NO_MEMORY, "too many bytes are being received");
                }
                bytes = Arrays.copyOf(bytes, Math.min(length, bytes.length * 2));
            }
            socket.setSoTimeout(leftMillis(deadline));
            int got = in.read(bytes, filled, bytes.length - filled);
            if (got < 0) {
                throw new EOFException(
                        "connection closed after " + filled + " of " + length + " bytes");
            }
            filled += got;
        }
        return bytes;
    }

    /// The connection as [PeerAuth] sees it.
    static PeerAuth.Bytes bytes(Socket socket, Deadline deadline) {
        return new PeerAuth.Bytes() {
            @Override
            public byte[] read(int count) throws IOException {
                return readFully(socket, count, deadline, _ -> true);
            }

            @Override
            public void write(byte[] bytes) throws IOException {
                socket.getOutputStream().write(bytes);
            }
        };
    }

    public static int leftMillis(Deadline deadline) throws SocketTimeoutException {
        long left = deadline.remaining().toMillis();
        if (left <= 0) {
            throw new SocketTimeoutException("handshake deadline passed");
        }
        return (int) Math.min(left, Integer.MAX_VALUE);
    }

    /// The answer of a node without RDMA to a connection request.
    static ObjectNode emptyConnection() {
        ObjectNode json =
                WireJson.object()
                        .put("local_gid", "")
                        .put("local_lid", 0)
                        .put("local_nic_path", "")
                        .put("payload", "")
                        .put("peer_nic_path", "");
        json.putArray("qp_num");
        return json.put("reply_msg", "");
    }

    public static ObjectNode notify(String name, String message) {
        return WireJson.object().put("name", name).put("notify_msg", message);
    }
}
