// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/// A peer made of two listening sockets whose answers a test scripts.
public final class ScriptedPeer implements AutoCloseable {
    /// One accepted data connection.
    public interface DataScript {
        void run(InputStream in, OutputStream out) throws IOException;
    }

    /// Thrown by a script: the connection is reset.
    public static final class Reset extends IOException {
        private static final long serialVersionUID = 1;
    }

    private final ServerSocket handshake =
            new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final ServerSocket data = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();

    /// @param answer from a handshake payload to the bytes of the reply
    public ScriptedPeer(Function<byte[], byte[]> answer) throws IOException {
        serve(
                handshake,
                (in, out) -> {
                    var reader = new DataInputStream(in);
                    int length = (int) Long.reverseBytes(reader.readLong());
                    out.write(answer.apply(reader.readNBytes(length)));
                });
    }

    /// A peer with a proper document and the given data port behaviour.
    public static ScriptedPeer withData(int version, DataScript script) throws IOException {
        var holder = new ScriptedPeer[1];
        holder[0] = new ScriptedPeer(_ -> document(holder[0], version));
        holder[0].serve(holder[0].data, script);
        return holder[0];
    }

    /// As [#withData], a kvferry peer of this incarnation.
    public static ScriptedPeer ofKvferry(String incarnation, DataScript script) throws IOException {
        var extension =
                "\"kvferry\":{\"incarnation\":\""
                        + incarnation
                        + "\",\"shared\":false,\"version\":"
                        + SegmentDocument.Extension.VERSION
                        + "},";
        var holder = new ScriptedPeer[1];
        holder[0] = new ScriptedPeer(_ -> document(holder[0], 2, extension));
        holder[0].serve(holder[0].data, script);
        return holder[0];
    }

    private static byte[] document(ScriptedPeer peer, int version) {
        return document(peer, version, "");
    }

    private static byte[] document(ScriptedPeer peer, int version, String extension) {
        byte[] json =
                ("{\"buffers\":[],"
                                + extension
                                + "\"name\":\""
                                + peer.name()
                                + "\",\"protocol\":\"tcp\",\"tcp_data_port\":"
                                + peer.data.getLocalPort()
                                + (version > 1 ? ",\"tcp_proto_version\":" + version : "")
                                + "}\n")
                        .getBytes(UTF_8);
        return ByteBuffer.allocate(9 + json.length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(1L + json.length)
                .put((byte) 1)
                .put(json)
                .array();
    }

    private void serve(ServerSocket listener, DataScript script) {
        Thread.ofVirtual()
                .start(() -> {
                    try {
                        while (true) {
                            Socket socket = listener.accept();
                            open.add(socket);
                            Thread.ofVirtual()
                                    .start(() -> {
                                        try (socket) {
                                            run(script, socket);
                                        } catch (IOException _) {
                                            // The test ended the connection.
                                        }
                                    });
                        }
                    } catch (IOException _) {
                        // Closed by the test.
                    }
                });
    }

    private static void run(DataScript script, Socket socket) throws IOException {
        try {
            script.run(socket.getInputStream(), socket.getOutputStream());
        } catch (Reset _) {
            socket.setSoLinger(true, 0);
        }
    }

    public int dataPort() {
        return data.getLocalPort();
    }

    public String name() {
        return "127.0.0.1:" + handshake.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        handshake.close();
        data.close();
        for (Socket socket : open) {
            socket.close();
        }
    }
}
