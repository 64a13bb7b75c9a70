// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/// Carries what is sent to some ports of 127.0.0.2 to the same ports of 127.0.0.1, and damages a
/// byte of a payload when told to.
final class DamagingRelay implements AutoCloseable {
    static final String HOST = "127.0.0.2";
    static final String BEHIND = "127.0.0.1";

    private static final int PORTS = 8;
    private static final int ATTEMPTS = 50;

    /// Longer than everything but payloads.
    private static final int PAYLOAD = 2048;

    private final List<ServerSocket> servers = new ArrayList<>();
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean armed = new AtomicBoolean();

    DamagingRelay() {
        var random = new Random();
        for (int attempt = 1; servers.isEmpty(); attempt++) {
            listen(20_000 + random.nextInt(10_000), attempt == ATTEMPTS);
        }
        for (var server : servers) {
            Thread.ofVirtual().start(() -> accept(server));
        }
    }

    private void listen(int first, boolean last) {
        try {
            var host = InetAddress.getByName(HOST);
            for (int port = first; port < first + PORTS; port++) {
                servers.add(new ServerSocket(port, 50, host));
            }
        } catch (IOException e) {
            servers.forEach(DamagingRelay::closeQuietly);
            servers.clear();
            if (last) {
                throw new UncheckedIOException(e);
            }
        }
    }

    int minPort() {
        return servers.getFirst().getLocalPort();
    }

    int maxPort() {
        return servers.getLast().getLocalPort();
    }

    /// Damages the next payload, whichever way it goes.
    void damageNext() {
        armed.set(true);
    }

    private void accept(ServerSocket server) {
        try {
            while (true) {
                var near = server.accept();
                open.add(near);
                var far = new Socket(BEHIND, server.getLocalPort());
                open.add(far);
                Thread.ofVirtual().start(() -> pump(near, far));
                Thread.ofVirtual().start(() -> pump(far, near));
            }
        } catch (IOException _) {
            // Closed by the test, or nobody listens there.
        }
    }

    private void pump(Socket from, Socket to) {
        var buffer = new byte[1 << 16];
        try {
            for (int n = 0; n >= 0; n = from.getInputStream().read(buffer)) {
                if (n >= PAYLOAD && armed.compareAndSet(true, false)) {
                    buffer[n / 2] ^= 1;
                }
                to.getOutputStream().write(buffer, 0, n);
            }
        } catch (IOException _) {
            // The other direction has ended the connection.
        }
        closeQuietly(from);
        closeQuietly(to);
    }

    private static void closeQuietly(AutoCloseable socket) {
        try {
            socket.close();
        } catch (Exception _) {
            // It is gone all the same.
        }
    }

    @Override
    public void close() {
        servers.forEach(DamagingRelay::closeQuietly);
        open.forEach(DamagingRelay::closeQuietly);
    }
}
