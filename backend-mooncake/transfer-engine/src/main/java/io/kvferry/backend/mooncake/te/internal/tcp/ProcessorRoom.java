// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

/// Counts the connections of the process that are in use, and compares them with its processors.
/// Each keeps a thread busy at this end. Transfers that begin at the same moment do not see each
/// other's connections yet; those behind them do.
///
/// Threading: any.
public final class ProcessorRoom {
    /// Processors belong to a process, not to one of its engines.
    public static final ProcessorRoom OF_PROCESS =
            new ProcessorRoom(Runtime.getRuntime().availableProcessors());

    /// A LongAdder, so that threads which start and end together do not contend for one cache line.
    private final LongAdder inUse = new LongAdder();

    private final AtomicInteger lately = new AtomicInteger();
    private final int processors;

    ProcessorRoom(int processors) {
        this.processors = processors;
    }

    /// A connection comes into use.
    void enter() {
        inUse.increment();
    }

    /// A connection that came into use rests, or is closed.
    void exit() {
        inUse.decrement();
    }

    /// Connections in use.
    int taken() {
        return inUse.intValue();
    }

    /// A connection that had not been in use lately comes into use.
    void arrive() {
        lately.incrementAndGet();
    }

    /// A connection has not been in use for a while, or is closed.
    void leave() {
        lately.decrementAndGet();
    }

    /// Connections that have been in use lately.
    int lately() {
        return lately.get();
    }

    /// Whether a thread that waits for a peer may spin instead of sleeping. It may while there are
    /// two processors for every connection used lately, one for each end, since the peer may be on
    /// this host. With fewer processors a spinning thread takes time from others, including its own
    /// peer. Connections that pause between two requests count, since both ends are about to work.
    boolean leaveRoomToSpin() {
        return Math.max(1, lately.get()) <= processors / 2;
    }

    /// How many connections one more transfer may keep busy: one at least, and no more than there
    /// are processors without a connection in use. Beyond that the ends of two connections take
    /// turns on a processor, and push the bytes of one another out of its caches before they are
    /// read.
    public int lanes() {
        return Math.max(1, processors - taken());
    }
}
