// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake.Message;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.HostNames;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Optional;

/// Asks a peer's handshake port one question per connection and closes at once: a native server
/// serves one connection at a time and waits for the close.
public final class HandshakeClient {
    private final Duration connectTimeout;
    private final Duration timeout;
    private final int maxBytes;
    private final HostNames names;
    private final Optional<PeerAuth> auth;

    public HandshakeClient(Duration connectTimeout, Duration timeout, int maxBytes) {
        this(connectTimeout, timeout, maxBytes, Optional.empty());
    }

    /// @param auth authentication before the question
    public HandshakeClient(
            Duration connectTimeout, Duration timeout, int maxBytes, Optional<PeerAuth> auth) {
        this(connectTimeout, timeout, maxBytes, auth, HostNames.SYSTEM);
    }

    HandshakeClient(
            Duration connectTimeout,
            Duration timeout,
            int maxBytes,
            Optional<PeerAuth> auth,
            HostNames names) {
        this.names = names;
        this.auth = auth;
        this.connectTimeout = connectTimeout;
        this.timeout = timeout;
        this.maxBytes = maxBytes;
    }

    /// An interrupt ends it, too.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_LOST], [ErrorCode#TIMEOUT], [ErrorCode#PROTOCOL],
    ///   [ErrorCode#CANCELLED] when interrupted, or why it was cancelled
    public Message ask(
            HostPort peer, Message question, Deadline caller, Cancellation cancellation) {
        Deadline deadline = caller.earlier(Deadline.in(timeout));
        try {
            IOException last = new UnknownHostException(peer.host());
            for (InetAddress address : names.addresses(peer.host(), deadline, cancellation)) {
                try (SocketChannel channel = SocketChannel.open()) {
                    cancellation.begin(channel);
                    try {
                        connect(channel.socket(), address, peer.port(), deadline);
                        return exchange(channel.socket(), question, deadline);
                    } finally {
                        cancellation.end(channel);
                    }
                } catch (SocketTimeoutException e) {
                    throw e;
                } catch (IOException e) {
                    last = e;
                }
            }
            throw last;
        } catch (SocketTimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "handshake with " + peer + " timed out", e);
        } catch (IOException e) {
            cancellation.check();
            if (Thread.currentThread().isInterrupted()) {
                throw new KvFerryException(
                        ErrorCode.CANCELLED, "interrupted in a handshake with " + peer, e);
            }
            throw new KvFerryException(
                    ErrorCode.PEER_LOST,
                    "no handshake with " + peer + ": " + e + "; is the peer running?",
                    e);
        }
    }

    private void connect(Socket socket, InetAddress address, int port, Deadline deadline)
            throws IOException {
        socket.setTcpNoDelay(true);
        int limit = Handshake.leftMillis(deadline.earlier(Deadline.in(connectTimeout)));
        socket.connect(new InetSocketAddress(address, port), limit);
    }

    private Message exchange(Socket socket, Message question, Deadline deadline)
            throws IOException {
        if (auth.isPresent()) {
            auth.get().connect(Handshake.bytes(socket, deadline));
        }
        Handshake.write(socket, question);
        Message answer = Handshake.read(socket, maxBytes, deadline);
        if (answer.type() != question.type()) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "handshake reply of type "
                            + answer.type()
                            + " to a request of type "
                            + question.type());
        }
        return answer;
    }
}
