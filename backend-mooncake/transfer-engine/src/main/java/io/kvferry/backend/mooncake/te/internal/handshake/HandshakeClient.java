// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake.Message;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
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

    /// @throws KvFerryException [ErrorCode#PEER_LOST], [ErrorCode#TIMEOUT] or [ErrorCode#PROTOCOL]
    public Message ask(HostPort peer, Message question, Deadline caller) {
        Deadline deadline = caller.earlier(Deadline.in(timeout));
        try {
            IOException last = new UnknownHostException(peer.host());
            for (InetAddress address : names.addresses(peer.host(), deadline)) {
                try (Socket socket = connect(address, peer.port(), deadline)) {
                    return exchange(socket, question, deadline);
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
            throw new KvFerryException(
                    ErrorCode.PEER_LOST,
                    "no handshake with " + peer + ": " + e + "; is the peer running?",
                    e);
        }
    }

    private Socket connect(InetAddress address, int port, Deadline deadline) throws IOException {
        var socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            int limit = Handshake.leftMillis(deadline.earlier(Deadline.in(connectTimeout)));
            socket.connect(new InetSocketAddress(address, port), limit);
            return socket;
        } catch (IOException e) {
            socket.close();
            throw e;
        }
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
