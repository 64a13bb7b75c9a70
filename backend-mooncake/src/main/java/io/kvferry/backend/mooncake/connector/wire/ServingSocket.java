// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.util.Optional;
import java.util.function.BiConsumer;

/// The ROUTER of a prefiller. Every message is one frame after the identity; one with another
/// number of frames is dropped, alone.
///
/// Threading: the [SideChannel]'s thread.
final class ServingSocket {
    private static final Logger LOG = LoggerFactory.getLogger(ServingSocket.class);
    private static final int MESSAGES_PER_TURN = 256;

    private final ZMQ.Socket socket;
    private final ZMQ.Poller poller;
    private final int index;
    private final Optional<Doorkeeper> doorkeeper;
    private final String address;

    /// Binds on a free port of `host`.
    ///
    /// @throws ZMQException when that cannot be
    ServingSocket(ZContext context, ZMQ.Poller poller, String host, Optional<CurveKeys> keys) {
        this.poller = poller;
        doorkeeper = keys.map(known -> new Doorkeeper(context, poller, known));
        socket = context.createSocket(SocketType.ROUTER);
        socket.setLinger(0);
        socket.setMaxMsgSize(SideChannel.MAX_MESSAGE_BYTES);
        socket.setRouterMandatory(true); // an answer to nobody is an error, not silence
        socket.setSendTimeOut(0);
        keys.ifPresent(known -> known.apply(socket));
        address = "tcp://" + host + ":" + socket.bindToRandomPort("tcp://" + host);
        index = poller.register(socket, ZMQ.Poller.POLLIN);
    }

    /// `tcp://host:port`
    String address() {
        return address;
    }

    /// Hands on what has come, with the identity of who sent it.
    void receive(BiConsumer<byte[], byte[]> take) {
        doorkeeper.ifPresent(Doorkeeper::serve);
        if (!poller.pollin(index)) {
            return;
        }
        for (int n = 0; n < MESSAGES_PER_TURN; n++) {
            byte[] identity = socket.recv(ZMQ.DONTWAIT);
            if (identity == null) {
                return;
            }
            singleFrame().ifPresent(message -> take.accept(identity, message));
        }
    }

    /// The one frame that is left of the current message; empty when it has another number of
    /// frames.
    private Optional<byte[]> singleFrame() {
        byte @Nullable [] first = socket.hasReceiveMore() ? socket.recv(ZMQ.DONTWAIT) : null;
        int more = 0;
        while (socket.hasReceiveMore()) {
            socket.recv(ZMQ.DONTWAIT);
            more++;
        }
        if (first == null || more > 0) {
            LOG.debug("dropped a message of {} frames", first == null ? 0 : more + 1);
            return Optional.empty();
        }
        return Optional.of(first);
    }

    /// Sends without waiting.
    ///
    /// @return whether somebody takes it
    boolean send(byte[] identity, byte[] message) {
        try {
            return socket.send(identity, ZMQ.SNDMORE | ZMQ.DONTWAIT)
                    && socket.send(message, ZMQ.DONTWAIT);
        } catch (ZMQException e) {
            LOG.debug("{}: nobody takes the answer: {}", address, e.getMessage());
            return false;
        }
    }
}
