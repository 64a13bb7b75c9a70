// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The network between a router and an instance: forwards TCP connections, and stalls or resets
/// them when a test says so.
///
/// Threading: any thread. Owns a virtual thread for the listener and two for each connection.
public final class LinkProxy implements AutoCloseable {
    private static final int CONNECT_MILLIS = 5_000;
    private static final int BUFFER = 16 << 10;

    private final int target;
    private final ServerSocket listener;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition flows = lock.newCondition();
    private boolean stalled;
    private volatile boolean closed;

    /// @param target port on loopback
    public LinkProxy(int target) throws IOException {
        this.target = target;
        listener = new ServerSocket(0, 1024, InetAddress.getLoopbackAddress());
        Thread.ofVirtual().name("link-" + target).start(this::accept);
    }

    public int port() {
        return listener.getLocalPort();
    }

    private void accept() {
        while (!closed) {
            try {
                var client = listener.accept();
                open.add(client);
                Thread.ofVirtual().start(() -> connect(client));
            } catch (IOException e) {
                return; // the listener is closed
            }
        }
    }

    private void connect(Socket client) {
        var server = new Socket();
        open.add(server);
        try {
            server.connect(
                    new InetSocketAddress(InetAddress.getLoopbackAddress(), target),
                    CONNECT_MILLIS);
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            Thread.ofVirtual().start(() -> pump(client, server));
            pump(server, client);
        } catch (IOException e) {
            drop(client);
            drop(server);
        }
    }

    private void pump(Socket from, Socket to) {
        try {
            var buffer = new byte[BUFFER];
            int n = from.getInputStream().read(buffer);
            while (n >= 0) {
                awaitFlow();
                to.getOutputStream().write(buffer, 0, n);
                n = from.getInputStream().read(buffer);
            }
            awaitFlow();
        } catch (IOException e) {
            // one side is gone, so the other goes too
        } finally {
            drop(from);
            drop(to);
        }
    }

    private void awaitFlow() {
        lock.lock();
        try {
            while (stalled && !closed) {
                flows.awaitUninterruptibly();
            }
        } finally {
            lock.unlock();
        }
    }

    private void drop(Socket socket) {
        open.remove(socket);
        try {
            socket.close();
        } catch (IOException e) {
            // it is closed in both cases
        }
    }

    /// No byte passes in either direction while it is stalled.
    public void stall(boolean now) {
        lock.lock();
        try {
            stalled = now;
            flows.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Resets every connection.
    void reset() {
        for (var socket : open) {
            try {
                socket.setSoLinger(true, 0);
            } catch (IOException e) {
                continue; // closed already
            }
            drop(socket);
        }
    }

    @Override
    public void close() throws IOException {
        closed = true;
        stall(false);
        listener.close();
        open.forEach(this::drop);
    }
}
