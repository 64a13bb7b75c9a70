// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.gpu.TensorLane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// The peers that have a communicator with this rank, which they made, by the identity that they
/// give themselves.
///
/// Threading: any thread.
final class Callers {
    private static final Logger LOG = LoggerFactory.getLogger(Callers.class);
    private static final int MOST_WAITING = 16;

    /// Long, because libzmq reconnects by itself and vLLM sends NEW only once: a peer that was
    /// forgotten while idle could never be served again. The number of communicators is bounded
    /// separately.
    private static final Duration MISSED = Duration.ofHours(1);

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Caller> callers = new HashMap<>();
    private boolean closed;

    /// A peer, and the communicator that its NEW made.
    static final class Caller {
        final String identity;
        final TensorLane lane;
        final Strand strand;
        private SideChannel.@Nullable Asker asker;
        private Deadline missed = Deadline.in(MISSED);
        private boolean usable = true;

        /// Its communicator is being made, or a message of it is being served.
        private boolean busy = true;

        Caller(String identity, TensorLane lane, SideChannel.Asker asker) {
            this.identity = identity;
            this.lane = lane;
            this.asker = asker;
            this.strand = new Strand("p2p-serve-" + identity, MOST_WAITING);
        }
    }

    /// Takes a new one in the place of one of the same identity, which ends.
    ///
    /// @return false when all is closed: it has ended
    boolean put(Caller caller, Failure anew) {
        Caller old;
        lock.lock();
        try {
            // Another connection may have said the same meanwhile.
            old = closed ? caller : callers.put(caller.identity, caller);
        } finally {
            lock.unlock();
        }
        if (old != null) {
            leave(old, anew);
        }
        return old != caller;
    }

    /// Who asks, unless it has no communicator.
    @Nullable Caller find(SideChannel.Asker asker) {
        lock.lock();
        try {
            var caller = closed ? null : callers.get(asker.identity());
            if (caller != null) {
                caller.asker = asker;
            }
            return caller;
        } finally {
            lock.unlock();
        }
    }

    /// Begins or ends to use its communicator, on its strand.
    ///
    /// @return whether there is one
    boolean use(Caller caller, boolean begins) {
        lock.lock();
        try {
            caller.busy = begins && caller.usable;
            return caller.usable; // one whose communicator failed waits to be dropped
        } finally {
            lock.unlock();
        }
    }

    /// On its strand: nothing uses its communicator.
    void drop(Caller caller) {
        lock.lock();
        try {
            callers.remove(caller.identity, caller);
            if (!caller.usable) {
                return;
            }
            caller.usable = false;
        } finally {
            lock.unlock();
        }
        caller.lane.close();
    }

    /// A peer has disconnected, or has reconnected.
    void end(String identity, Failure why) {
        Caller caller;
        lock.lock();
        try {
            caller = callers.remove(identity);
        } finally {
            lock.unlock();
        }
        if (caller != null) {
            leave(caller, why);
        }
    }

    private void leave(Caller caller, Failure why) {
        caller.lane.abandon(why); // ends what the strand waits for
        caller.strand.add(() -> drop(caller)); // nothing uses its communicator there
    }

    /// A connection is over: what its peer is in the middle of ends, and an idle peer may come
    /// back.
    ///
    /// @return whether it was that of a peer
    boolean gone(SideChannel.Asker asker) {
        var identity = asker.identity();
        Caller busy = null;
        boolean known = false;
        lock.lock();
        try {
            var caller = callers.get(identity);
            if (caller != null && caller.asker == asker) {
                caller.asker = null;
                caller.missed = Deadline.in(MISSED);
                known = true;
                if (caller.busy) {
                    busy = callers.remove(identity); // and no other, that connects meanwhile
                }
            } else if (caller == null) { // its communicator had failed before
                known = !identity.isEmpty();
            }
        } finally {
            lock.unlock();
        }
        if (busy != null) {
            leave(busy, new Failure(ErrorCode.PEER_LOST, identity + " has gone"));
        }
        return known;
    }

    /// Forgets peers that have not come back.
    void reap() {
        List<Caller> old;
        lock.lock();
        try {
            old =
                    callers.values().stream()
                            .filter(each -> each.asker == null && each.missed.passed())
                            .toList();
            callers.values().removeAll(old);
        } finally {
            lock.unlock();
        }
        for (var caller : old) {
            var who = caller.identity;
            LOG.warn("{} has not come back within {}: its communicator ends", who, MISSED);
            leave(caller, new Failure(ErrorCode.PEER_LOST, who + " has not come back"));
        }
    }

    void close() {
        List<String> all;
        lock.lock();
        try {
            closed = true;
            all = List.copyOf(callers.keySet());
        } finally {
            lock.unlock();
        }
        all.forEach(identity -> end(identity, new Failure(ErrorCode.CLOSED, "closed here")));
    }
}
