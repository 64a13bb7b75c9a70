// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.Cancellation;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;

/// A peer without kvferry's extension, of either version of the data port, one connection per
/// request.
public final class PlainClient {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final int port;
    private final int receipts;

    /// @param version of the data port
    public PlainClient(String segmentName, int version) {
        this.receipts = version == 2 ? DataFrames.V2 : 0;
        var client = new HandshakeClient(LIMIT, LIMIT, 1 << 20);
        port =
                SegmentDocument.decode(
                                client.ask(
                                                HostPort.parse(segmentName),
                                                new Handshake.Message(
                                                        Handshake.METADATA,
                                                        WireJson.bytes(WireJson.object())),
                                                Deadline.in(LIMIT),
                                                new Cancellation())
                                        .text())
                        .dataPort();
    }

    /// Sends a WRITE and returns what comes back until the server closes: its receipt with version
    /// 2, nothing with version 1.
    public byte[] write(long address, byte[] bytes) {
        try (var socket = new RawSocket(port)) {
            var header = RawSocket.header(bytes.length, address, DataFrames.WRITE | receipts);
            // In one piece: the server may refuse it and close before a second one is sent.
            var all = ByteBuffer.allocate(header.length + bytes.length).put(header).put(bytes);
            return socket.send(all.array()).endOutput().drain();
        } catch (IOException _) {
            return new byte[0]; // reset while the bytes were under way
        }
    }

    /// Sends the header of a WRITE, whose bytes are for the caller to send.
    public RawSocket beginWrite(long address, int bytes) throws IOException {
        return new RawSocket(port)
                .send(RawSocket.header(bytes, address, DataFrames.WRITE | receipts));
    }

    /// Sends a READ and returns receipt and bytes, or what comes of them.
    public byte[] read(long address, int bytes) {
        try (var socket = new RawSocket(port)) {
            socket.send(RawSocket.header(bytes, address, DataFrames.READ | receipts));
            return socket.endOutput().drain();
        } catch (IOException _) {
            return new byte[0];
        }
    }
}
