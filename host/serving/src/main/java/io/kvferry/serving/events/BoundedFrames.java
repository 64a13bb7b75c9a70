// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import org.zeromq.ZMQ;

import zmq.Msg;
import zmq.msg.MsgAllocator;

/// Allocates the frames that a socket of JeroMQ receives, on the heap, whatever a peer announces.
///
/// JeroMQ 0.6.0 compares an announced length with the limit as a signed number and then takes its
/// lower 32 bits: lengths from 2^63 on pass, and end its io thread for lack of memory, or make it
/// spin for ever once the peer has gone, by an exception in the middle of a frame
/// (`Socket.setDecoder` is of no use, since it holds for raw sockets alone). Here such a frame is
/// short; what follows is read as other frames.
final class BoundedFrames implements MsgAllocator {
    private final int most;

    private BoundedFrames(int most) {
        this.most = most;
    }

    /// Bounds what a socket receives; to be called before it binds or connects.
    ///
    /// @param most bytes of a frame
    static void bound(ZMQ.Socket socket, int most) {
        socket.setMaxMsgSize(most);
        socket.setMsgAllocator(new BoundedFrames(most));
    }

    @Override
    public Msg allocate(int size) {
        return new Msg(size >= 0 && size <= most ? size : 1);
    }
}
