// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.peers;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/// An HTTP server that begins to answer and never ends: it sends on and on, or nothing more.
///
/// Threading: serves one connection at a time.
public final class EndlessAnswer implements AutoCloseable {
    private final ServerSocket listener;
    private final AtomicLong sent = new AtomicLong();
    private final Thread thread;

    /// @param bytes of the body before it stalls
    public EndlessAnswer(long bytes) throws IOException {
        listener = new ServerSocket(0, 8, InetAddress.getLoopbackAddress());
        thread = Thread.ofVirtual().start(() -> serve(bytes));
    }

    public URI uri() {
        return URI.create("http://127.0.0.1:" + listener.getLocalPort());
    }

    /// Bytes of bodies that left.
    public long sent() {
        return sent.get();
    }

    private void serve(long bytes) {
        while (!listener.isClosed()) {
            try (var socket = listener.accept()) {
                answer(socket, bytes);
            } catch (IOException _) {
                // The client has had enough, or the test is over.
            }
        }
    }

    private void answer(Socket socket, long bytes) throws IOException {
        var out = socket.getOutputStream();
        out.write(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
                        .getBytes(StandardCharsets.US_ASCII));
        var some = " ".repeat(64 << 10).getBytes(StandardCharsets.US_ASCII);
        for (long left = bytes; left > 0; left -= some.length) {
            out.write(some, 0, (int) Math.min(left, some.length));
            sent.addAndGet(some.length);
        }
        out.flush();
        var in = socket.getInputStream();
        while (in.read() >= 0) {
            // The request, and then the end.
        }
    }

    @Override
    public void close() {
        try {
            listener.close();
            thread.interrupt();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
