// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZFrame;
import org.zeromq.ZMQ;
import org.zeromq.ZMsg;

/// Says which CURVE clients a ROUTER lets in: the other end of ZeroMQ's authentication protocol
/// (ZAP, RFC 27), which asks once per connection.
///
/// Threading: the [SideChannel]'s thread.
final class Doorkeeper {
    private static final String ENDPOINT = "inproc://zeromq.zap.01";
    private static final int FRAMES = 7;

    private final CurveKeys keys;
    private final ZMQ.Socket socket;
    private final ZMQ.Poller poller;
    private final int index;

    Doorkeeper(ZContext context, ZMQ.Poller poller, CurveKeys keys) {
        this.keys = keys;
        this.poller = poller;
        socket = context.createSocket(SocketType.REP);
        socket.setLinger(0);
        socket.bind(ENDPOINT);
        index = poller.register(socket, ZMQ.Poller.POLLIN);
    }

    /// Answers what was asked.
    void serve() {
        if (!poller.pollin(index)) {
            return;
        }
        for (var asked = ZMsg.recvMsg(socket, ZMQ.DONTWAIT);
                asked != null;
                asked = ZMsg.recvMsg(socket, ZMQ.DONTWAIT)) {
            answer(asked);
        }
    }

    /// Version, request id, domain, address, identity, mechanism, key in; version, request id,
    /// status, text, user id, metadata out.
    private void answer(ZMsg asked) {
        var frames = asked.toArray(new ZFrame[0]);
        boolean known =
                frames.length == FRAMES
                        && frames[5].streq("CURVE")
                        && frames[6].size() == ZMQ.Curve.KEY_SIZE
                        && keys.serves(frames[6].getData());
        var reply = new ZMsg();
        reply.add("1.0");
        reply.add(frames.length > 1 ? frames[1].getData() : new byte[0]);
        reply.add(known ? "200" : "400");
        reply.add(known ? "OK" : "unknown key");
        reply.add("");
        reply.add(new byte[0]);
        reply.send(socket);
    }
}
