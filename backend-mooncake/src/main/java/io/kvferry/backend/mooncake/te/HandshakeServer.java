// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Handshake.Message;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;

/// Answers Mooncake's handshake port: one request per connection, any number of connections at a
/// time up to a bound, so that a silent client holds nobody up. What is malformed is dropped
/// without an answer.
///
/// Threading: one platform thread accepts; each connection has a virtual thread of its own until it
/// is answered.
final class HandshakeServer implements AutoCloseable {
    /// What the server answers with.
    interface Node {
        byte[] metadataReply();

        /// False when the notification cannot be queued.
        boolean accept(Notification notification);
    }

    private static final Logger LOG = LoggerFactory.getLogger(HandshakeServer.class);
    private static final int MOST_CONNECTIONS = 1024;
    private static final Duration GOODBYE = Duration.ofSeconds(1);

    private final ServerSocket listener;
    private final Node node;
    private final Duration timeout;
    private final int maxBytes;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final Semaphore slots = new Semaphore(MOST_CONNECTIONS);
    private final Thread acceptor;
    private volatile boolean closed;

    HandshakeServer(ServerSocket listener, Node node, Duration timeout, int maxBytes) {
        this.listener = listener;
        this.node = node;
        this.timeout = timeout;
        this.maxBytes = maxBytes;
        this.acceptor =
                Thread.ofPlatform()
                        .name("kvferry-te-handshake-" + listener.getLocalPort())
                        .daemon()
                        .start(this::accept);
    }

    private void accept() {
        while (!closed) {
            try {
                Socket socket = listener.accept();
                if (!slots.tryAcquire()) {
                    socket.close();
                    continue;
                }
                open.add(socket);
                Thread.ofVirtual().name("kvferry-te-handshake").start(() -> serve(socket));
            } catch (IOException e) {
                if (!closed) {
                    LOG.warn(
                            "handshake port {} stops accepting: {}",
                            listener.getLocalPort(),
                            e.toString());
                }
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            Message request = Handshake.read(socket, maxBytes, Deadline.in(timeout));
            Handshake.write(socket, answer(request));
            socket.shutdownOutput();
            // The client closes first, so that the server collects no TIME_WAIT sockets.
            socket.setSoTimeout((int) GOODBYE.toMillis());
            var _ = socket.getInputStream().read();
        } catch (SocketTimeoutException e) {
            LOG.debug("handshake with {} timed out", socket.getRemoteSocketAddress());
        } catch (IOException | KvFerryException e) {
            LOG.debug(
                    "handshake with {} dropped: {}", socket.getRemoteSocketAddress(), e.toString());
        } finally {
            open.remove(socket);
            slots.release();
        }
    }

    private Message answer(Message request) {
        return switch (request.type()) {
            case Handshake.METADATA -> new Message(Handshake.METADATA, node.metadataReply());
            case Handshake.NOTIFY -> new Message(Handshake.NOTIFY, Json.bytes(notified(request)));
            case Handshake.PROBE ->
                    new Message(
                            Handshake.PROBE, Json.bytes(Json.object().put("status", "success")));
            default -> {
                Json.objectOf(
                        Json.parse(request.text(), "connection request"), "connection request");
                yield new Message(request.type(), Json.bytes(Handshake.emptyConnection()));
            }
        };
    }

    private JsonNode notified(Message request) {
        String what = "notification";
        JsonNode json = Json.objectOf(Json.parse(request.text(), what), what);
        String name = Json.text(json, "name", what);
        String message = Json.text(json, "notify_msg", what);
        // An empty message in the answer is Mooncake's refusal.
        boolean taken = !message.isEmpty() && node.accept(new Notification(name, message));
        return Handshake.notify("", taken ? "success" : "");
    }

    @Override
    public void close() {
        closed = true;
        try {
            listener.close();
            for (Socket socket : open) {
                socket.close();
            }
            acceptor.join(Duration.ofSeconds(5));
        } catch (IOException e) {
            LOG.warn("closing the handshake port failed: {}", e.toString());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
