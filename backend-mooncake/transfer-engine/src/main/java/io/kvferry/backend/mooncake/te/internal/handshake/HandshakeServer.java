// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake.Message;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.net.AcceptLoop;
import io.kvferry.toolkit.net.ClosingAside;
import io.kvferry.toolkit.net.FullPort;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// Answers Mooncake's handshake port: one request per connection, with a bounded number of
/// concurrent connections, so that a silent client does not block others. Malformed requests are
/// dropped without an answer.
///
/// Threading: one platform thread accepts; each connection has its own until it is answered. They
/// are not virtual threads: the JDK's poller thread, which wakes virtual threads that wait for
/// input, ends permanently on an OutOfMemoryError (JDK 25.0.3, sun.nio.ch.Poller), and none of them
/// is woken any more.
public final class HandshakeServer implements AutoCloseable {
    /// The answers of the server.
    public interface Node {
        byte[] metadataReply();

        /// False when the notification cannot be queued.
        ///
        /// @param host where it comes from
        boolean accept(Notification notification, String host);
    }

    private static final Logger LOG = LoggerFactory.getLogger(HandshakeServer.class);
    private static final int MOST_CONNECTIONS = 1024;
    private static final Duration GOODBYE = Duration.ofSeconds(1);

    /// Bytes of requests and answers that all connections hold together, see [FairRoom]. A request
    /// takes about four times its bytes while it is parsed.
    private static final long MOST_BYTES = 64L << 20;

    private static final int PART_OF_HEAP = 16;

    private final Node node;
    private final Optional<PeerAuth> auth;
    private final Duration timeout;
    private final int maxBytes;
    private final FairRoom room = FairRoom.ofHeap(MOST_BYTES, PART_OF_HEAP);

    /// Open connections, each with the time by which it must be over.
    private final Map<SocketChannel, Deadline> open = new ConcurrentHashMap<>();

    private final AcceptLoop acceptor;
    private volatile boolean closed;

    public HandshakeServer(
            ServerSocketChannel listener,
            Node node,
            Watchdog watchdog,
            Duration timeout,
            int maxBytes,
            Optional<PeerAuth> auth) {
        this.auth = auth;
        this.node = node;
        this.timeout = timeout;
        this.maxBytes = maxBytes;
        watchdog.repeat(this::cutOffLate);
        this.acceptor = // last: nobody could end it where this fails
                AcceptLoop.start(
                        "kvferry-te-handshake-" + listener.socket().getLocalPort(),
                        listener,
                        this::accepted);
    }

    /// A peer that does not read its answer holds a thread in a write, which has no limit of its
    /// own.
    private boolean cutOffLate() {
        open.forEach((channel, limit) -> {
            if (limit.passed()) {
                cutOff(channel, limit);
            }
        });
        return !closed;
    }

    private void cutOff(SocketChannel channel, Deadline limit) {
        Runnable closing =
                () -> closeQuietly(channel); // made first: after the removal nobody else closes it
        if (open.remove(channel, limit)) {
            ClosingAside.close(closing);
        }
    }

    private void accepted(SocketChannel channel) throws IOException {
        if (open.size() >= MOST_CONNECTIONS) {
            makeRoom(host(channel));
        }
        open.put(channel, Deadline.in(timeout.multipliedBy(2).plus(GOODBYE)));
        boolean begun = false;
        try {
            if (closed) { // nothing would close it later
                throw new ClosedChannelException();
            }
            Thread.ofPlatform()
                    .name("kvferry-te-io-handshake")
                    .daemon()
                    .start(() -> serve(channel));
            begun = true;
        } finally {
            if (!begun) {
                end(channel);
            }
        }
    }

    /// Closes the oldest connection of the host that has most. A handshake takes moments, and
    /// silent clients must not block all others.
    private void makeRoom(String newcomer) {
        FullPort.crowd(open.entrySet(), MOST_CONNECTIONS, newcomer, entry -> host(entry.getKey()))
                .stream()
                .min(Comparator.comparingLong(entry -> entry.getValue().remainingNanos()))
                .ifPresent(longest -> cutOff(longest.getKey(), longest.getValue()));
    }

    private static String host(SocketChannel channel) {
        var address = channel.socket().getInetAddress();
        return address == null ? "?" : address.getHostAddress(); // null where it has gone
    }

    private void end(SocketChannel channel) {
        open.remove(channel);
    }

    /// Why clients cannot connect; empty if they can.
    public Optional<String> trouble() {
        return acceptor.trouble();
    }

    private void serve(SocketChannel channel) {
        var held = new AtomicLong();
        var host = host(channel);
        try (channel) {
            Socket socket = channel.socket();
            Deadline by = Deadline.in(timeout);
            if (auth.isPresent()) {
                auth.get().accept(Handshake.bytes(socket, by));
            }
            Message request =
                    Handshake.read(socket, maxBytes, by, bytes -> hold(host, held, bytes));
            Message answer = answer(request, host);
            if (!hold(host, held, answer.json().length)) {
                throw new KvFerryException(ErrorCode.NO_MEMORY, "too many answers are on the way");
            }
            Handshake.write(socket, answer);
            socket.shutdownOutput();
            // The client closes first, so that the server collects no TIME_WAIT sockets.
            socket.setSoTimeout((int) GOODBYE.toMillis());
            var _ = socket.getInputStream().read();
        } catch (SocketTimeoutException e) {
            LOG.debug("handshake with {} timed out", channel);
        } catch (IOException | KvFerryException e) {
            LOG.debug("handshake with {} dropped: {}", channel, e.toString());
        } catch (RuntimeException | Error e) { // ends this connection only
            LoopReport.WARN.log(LOG, "handshake with {} failed", channel, e);
        } finally {
            if (held.get() > 0) {
                room.give(host, 0, held.get());
            }
            end(channel);
        }
    }

    private boolean hold(String host, AtomicLong held, long bytes) {
        boolean taken = room.take(host, 0, bytes);
        if (taken) {
            held.addAndGet(bytes);
        }
        return taken;
    }

    private Message answer(Message request, String host) {
        return switch (request.type()) {
            case Handshake.METADATA -> new Message(Handshake.METADATA, node.metadataReply());
            case Handshake.NOTIFY ->
                    new Message(Handshake.NOTIFY, WireJson.bytes(notified(request, host)));
            case Handshake.PROBE ->
                    new Message(
                            Handshake.PROBE,
                            WireJson.bytes(WireJson.object().put("status", "success")));
            default -> {
                WireJson.objectOf(
                        WireJson.parse(request.text(), "connection request"), "connection request");
                yield new Message(request.type(), WireJson.bytes(Handshake.emptyConnection()));
            }
        };
    }

    private JsonNode notified(Message request, String host) {
        String what = "notification";
        JsonNode json = WireJson.objectOf(WireJson.parse(request.text(), what), what);
        String name = WireJson.text(json, "name", what);
        String message = WireJson.text(json, "notify_msg", what);
        // An empty message in the answer is Mooncake's refusal.
        boolean taken = !message.isEmpty() && node.accept(new Notification(name, message), host);
        return Handshake.notify("", taken ? "success" : "");
    }

    @Override
    public void close() {
        closed = true;
        acceptor.close();
        open.keySet().forEach(HandshakeServer::closeQuietly);
    }

    private static void closeQuietly(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("closing a handshake connection failed: {}", e.toString());
        }
    }
}
