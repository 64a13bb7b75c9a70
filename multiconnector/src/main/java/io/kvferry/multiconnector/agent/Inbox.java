// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.PeerState;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.LongAdder;

/// What backends tell the agent: notifications, bounded, and states of peers.
///
/// Threading: any thread; never blocks.
final class Inbox {
    private final ArrayBlockingQueue<Notification> waiting;
    private final LongAdder dropped = new LongAdder();
    private final PeerTable peers;

    Inbox(int bound, PeerTable peers) {
        this.waiting = new ArrayBlockingQueue<>(bound);
        this.peers = peers;
    }

    /// The ear of one backend.
    BackendContext.Sink of(String backend) {
        return new BackendContext.Sink() {
            @Override
            public void notified(PeerId from, byte[] notification) {
                if (!waiting.offer(new Notification(from, backend, notification))) {
                    dropped.increment();
                }
            }

            @Override
            public void peerChanged(PeerId peer, PeerState state, String why) {
                peers.changed(peer, backend, state, why);
            }
        };
    }

    List<Notification> drain(int most) {
        var drained = new ArrayList<Notification>();
        waiting.drainTo(drained, most);
        return drained;
    }

    long dropped() {
        return dropped.sum();
    }
}
