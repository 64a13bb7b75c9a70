// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import org.zeromq.ZMQ;

import zmq.Msg;
import zmq.msg.MsgAllocator;

/// Allocates the frames that a JeroMQ socket receives on the heap, with a bounded size, whatever
/// length a peer announces.
///
/// JeroMQ 0.6.0 compares an announced length with the limit as a signed number and then takes its
/// lower 32 bits. Lengths from 2^63 on therefore pass the check. They end its io thread with an
/// OutOfMemoryError, or make it spin for ever after a disconnect, because of an exception in the
/// middle of a frame. (`Socket.setDecoder` does not help, since it applies only to raw sockets.)
/// Here such a frame is truncated, and the following bytes are read as other frames.
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
