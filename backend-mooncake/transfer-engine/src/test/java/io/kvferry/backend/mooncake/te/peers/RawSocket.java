// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.spi.Deadline;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A peer that writes and reads bytes as the test says.
public final class RawSocket implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final Socket socket;

    public RawSocket(int port) {
        this(port, "127.0.0.1");
    }

    /// @param from its own address
    public RawSocket(int port, String from) {
        try {
            socket = new Socket("127.0.0.1", port, InetAddress.ofLiteral(from), 0);
            socket.setTcpNoDelay(true);
            socket.setSoTimeout((int) LIMIT.toMillis());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public RawSocket send(byte[] bytes) throws IOException {
        socket.getOutputStream().write(bytes);
        return this;
    }

    public RawSocket sendHex(String hex) throws IOException {
        return send(HexFormat.of().parseHex(hex.replaceAll("[\\s|]", "")));
    }

    public RawSocket endOutput() throws IOException {
        socket.shutdownOutput();
        return this;
    }

    public String receiveHex(int bytes) throws IOException {
        return HexFormat.of().formatHex(receive(bytes));
    }

    public byte[] receive(int bytes) throws IOException {
        return socket.getInputStream().readNBytes(bytes);
    }

    /// Everything until the other side closes; a reset counts as that, behind what came before it.
    public byte[] drain() {
        var all = new ByteArrayOutputStream();
        try {
            socket.getInputStream().transferTo(all);
        } catch (SocketTimeoutException e) {
            throw new AssertionError("the other side keeps the connection open", e);
        } catch (IOException _) {
            return all.toByteArray();
        }
        return all.toByteArray();
    }

    /// Whether the other side goes away while nothing is read here; a byte now and then finds out.
    public boolean isDroppedUnread(Deadline deadline) {
        while (!deadline.passed()) {
            try {
                send(new byte[1]);
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
            } catch (IOException _) {
                return true;
            }
        }
        return false;
    }

    /// The head of a batch WRITE of one range, without its bytes.
    public static byte[] batchWrite(TransferEngine to, long capability, long address, long bytes) {
        return batchWrite(to, capability, 0, address, bytes);
    }

    public static byte[] batchWrite(
            TransferEngine to, long capability, long token, long address, long bytes) {
        return ByteBuffer.allocate(64)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(header(bytes, 1, DataFrames.BATCH_WRITE))
                .putLong(Incarnation.shortForm(to.info().incarnation()))
                .putLong(capability)
                .putLong(token)
                .putLong(address)
                .putLong(bytes)
                .array();
    }

    public static byte[] fence(TransferEngine to, long token) {
        return ByteBuffer.allocate(64)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(header(0, 0, DataFrames.FENCE))
                .putLong(Incarnation.shortForm(to.info().incarnation()))
                .putLong(0)
                .putLong(token)
                .array();
    }

    public static byte[] header(long size, long address, int opcode) {
        return ByteBuffer.allocate(24)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(size)
                .putLong(address)
                .put((byte) opcode)
                .array();
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
