// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

/// A TCP proxy that ends each connection after some bytes, and carries nothing while it is held.
public final class CutLink implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final int port;
    private final long there;
    private final long back;
    private final boolean reset;
    private final CountDownLatch carried = new CountDownLatch(1);
    private volatile CountDownLatch gate = new CountDownLatch(0);

    /// @param there bytes that reach `port` before the end
    /// @param back bytes that come back before the end
    /// @param reset with RST instead of FIN
    public CutLink(int port, long there, long back, boolean reset) throws IOException {
        this.port = port;
        this.there = there;
        this.back = back;
        this.reset = reset;
        Thread.ofVirtual().start(this::accept);
    }

    public int port() {
        return server.getLocalPort();
    }

    /// Lets nothing through, until [#release].
    public void hold() {
        gate = new CountDownLatch(1);
    }

    public void release() {
        gate.countDown();
    }

    /// Counted down when somebody has sent something, held or not.
    public CountDownLatch carried() {
        return carried;
    }

    private void accept() {
        try {
            while (true) {
                var near = server.accept();
                var far = new Socket(InetAddress.getLoopbackAddress(), port);
                open.add(near);
                open.add(far);
                Thread.ofVirtual().start(() -> pump(near, far, there));
                Thread.ofVirtual().start(() -> pump(far, near, back));
            }
        } catch (IOException _) {
            // Closed by the test, or nobody listens there.
        }
    }

    private void pump(Socket from, Socket to, long limit) {
        var buffer = new byte[4096];
        try {
            for (long left = limit; left > 0; ) {
                int n = from.getInputStream().read(buffer, 0, (int) Math.min(left, 4096));
                if (n < 0) {
                    break;
                }
                carried.countDown();
                gate.await();
                to.getOutputStream().write(buffer, 0, n);
                left -= n;
            }
        } catch (IOException _) {
            // The other direction has ended the connection.
        } catch (InterruptedException e) {
            throw new AssertionError("nobody interrupts this thread", e);
        }
        end(from);
        end(to);
    }

    private void end(Socket socket) {
        try (socket) {
            if (reset && !socket.isClosed()) {
                socket.setSoLinger(true, 0);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() throws IOException {
        release();
        server.close();
        for (var socket : open) {
            socket.close();
        }
    }
}
