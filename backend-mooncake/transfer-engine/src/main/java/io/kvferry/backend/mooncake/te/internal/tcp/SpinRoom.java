// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import java.util.concurrent.atomic.AtomicInteger;

/// Whether a thread that waits for a peer may look again and again instead of sleeping: while every
/// connection in use has two processors, one for each end, since the peer may be on this host.
/// Where there are fewer, a thread that looks keeps others from their work, its own peer among
/// them.
///
/// Threading: any.
final class SpinRoom {
    /// Processors belong to a process, not to one of its engines.
    static final SpinRoom OF_PROCESS = new SpinRoom(Runtime.getRuntime().availableProcessors());

    private final AtomicInteger inUse = new AtomicInteger();
    private final int most;

    SpinRoom(int processors) {
        most = processors / 2;
    }

    /// A connection comes into use.
    void enter() {
        inUse.incrementAndGet();
    }

    /// A connection that came into use rests, or is closed.
    void exit() {
        inUse.decrementAndGet();
    }

    /// Connections in use.
    int taken() {
        return inUse.get();
    }

    boolean suffices() {
        return inUse.get() <= most;
    }
}
