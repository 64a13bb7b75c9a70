// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.internal.tcp.DataClient;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer.Lane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.ThreadSlots;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The idle connections (lanes) to a peer, and the bounded number of all its connections.
///
/// A thread preferably gets the connection that it used last: if pairs of threads stay together,
/// the scheduler can keep both ends on one processor within a host, with the bytes in its cache.
/// Taking and returning that connection needs no lock while no thread waits. Otherwise a returned
/// connection goes to the thread that has waited longest.
///
/// Threading: any thread; a lane belongs to the thread that took it.
final class LanePool {
    private static final Logger LOG = LoggerFactory.getLogger(LanePool.class);

    private final String segmentName;
    private final int most;

    private final ThreadSlots<Lane> slots = new ThreadSlots<>();
    private final ReentrantLock lock = new ReentrantLock();

    /// Idle lanes that are in no slot, the last returned first. Sized for all lanes, so that
    /// returning one never allocates.
    private final ArrayDeque<Lane> idle;

    /// Those that wait, the first that came first.
    private final GrowSafeQueue<Waiter> waiters = new GrowSafeQueue<>();

    /// Threads that look for a lane under the lock, or wait for one.
    private final AtomicInteger looking = new AtomicInteger();

    private int lanes;
    private long lastUse = System.nanoTime();
    private volatile boolean closed;

    /// A thread that waits; what it is served is set under the lock.
    private static final class Waiter {
        final Condition turn;
        boolean served;

        /// Null where it is served room for one more.
        @Nullable Lane lane;

        Waiter(Condition turn) {
            this.turn = turn;
        }
    }

    LanePool(String segmentName, int most) {
        this.segmentName = segmentName;
        this.most = most;
        this.idle = new ArrayDeque<>(most);
    }

    /// Takes an idle lane, or waits in turn for a returned one.
    ///
    /// @return null if there is none and one more is permitted. It is counted already; the caller
    ///   opens it or calls [#uncount]
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when all lanes stay in use
    /// @throws ClosedChannelException when the job ends first
    @Nullable Lane take(Deadline deadline, DataClient.Job job) throws ClosedChannelException {
        Lane near = slots.take();
        if (near != null && near.lastUser == Thread.currentThread().threadId()) {
            return near;
        }
        lock.lock();
        // Before the slots are searched: whoever puts a lane into one either sees this, or its lane
        // is found.
        looking.incrementAndGet();
        try {
            return look(near, deadline, job);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while waiting for a connection", e);
        } finally {
            looking.decrementAndGet();
            lock.unlock();
        }
    }

    /// @param near of another thread that has the same slot, or null
    private @Nullable Lane look(@Nullable Lane near, Deadline deadline, DataClient.Job job)
            throws InterruptedException, ClosedChannelException {
        if (near != null) {
            idle.addFirst(near); // the pool is open: a closed one has no idle lane
            serveWaiters();
        }
        Lane own = own();
        if (own != null) {
            return own;
        }
        if (waiters.isEmpty()) {
            Lane found = any();
            if (found != null) {
                return found;
            }
            if (lanes < most) {
                lanes++;
                return null;
            }
        }
        return await(deadline, job);
    }

    /// Waits for its turn.
    ///
    /// @return null where it got room for one more
    private @Nullable Lane await(Deadline deadline, DataClient.Job job)
            throws InterruptedException, ClosedChannelException {
        var self = new Waiter(lock.newCondition());
        waiters.add(self);
        try {
            while (!self.served) {
                if (job.ended()) {
                    throw new ClosedChannelException();
                }
                long left = deadline.remainingNanos();
                if (left <= 0) {
                    throw new KvFerryException(
                            ErrorCode.TIMEOUT,
                            "all " + lanes + " connections to " + segmentName + " stayed in use");
                }
                var _ = self.turn.awaitNanos(left);
            }
        } catch (InterruptedException e) {
            if (!self.served) {
                throw e;
            }
            Thread.currentThread().interrupt(); // seen by what it does next
        } finally {
            if (!self.served) {
                waiters.remove(self);
            }
        }
        return self.lane;
    }

    /// Called after each change under the lock. Afterwards, while a thread waits, no lane is idle
    /// and no further one is permitted, so a later caller cannot overtake.
    private void serveWaiters() {
        while (!waiters.isEmpty()) {
            Lane lane = any();
            if (lane == null && lanes >= most) {
                return;
            }
            if (lane == null) {
                lanes++;
            }
            Waiter first = waiters.remove();
            first.lane = lane;
            first.served = true;
            first.turn.signal();
        }
    }

    private @Nullable Lane own() {
        long self = Thread.currentThread().threadId();
        Lane found = null;
        for (int left = idle.size(); left > 0; left--) { // once around, without an iterator
            Lane lane = idle.removeFirst();
            if (found == null && lane.lastUser == self) {
                found = lane;
            } else {
                idle.addLast(lane);
            }
        }
        return found;
    }

    private @Nullable Lane any() {
        Lane found = idle.pollFirst();
        return found == null ? slots.takeAny() : found;
    }

    /// Takes back a lane.
    ///
    /// @return false when it does not stay: it counts no more, and the caller closes it
    boolean give(Lane lane, boolean healthy) {
        lane.lastUser = Thread.currentThread().threadId();
        lane.restingSince = System.nanoTime();
        boolean usable = healthy && !lane.wire.isStopped();
        if (usable && !closed && slots.put(lane)) {
            boolean wanted = closed || looking.get() > 0;
            if (!wanted || !slots.remove(lane)) {
                return true; // idle in its slot, or taken by another thread
            }
        }
        lock.lock();
        try {
            boolean kept = usable && !closed;
            if (kept) {
                idle.addFirst(lane);
            } else {
                lanes--;
                used(lane.restingSince);
            }
            serveWaiters();
            return kept;
        } finally {
            lock.unlock();
        }
    }

    /// A lane that was taken, or was to be made, does not come back; its borrower closes it.
    void uncount() {
        lock.lock();
        try {
            lanes--;
            used(System.nanoTime());
            serveWaiters();
        } finally {
            lock.unlock();
        }
    }

    private void used(long until) {
        if (until - lastUse > 0) {
            lastUse = until;
        }
    }

    /// Closes lanes that the peer has closed, those idle for long, and those that cannot be
    /// checked, for example after an OutOfMemoryError.
    ///
    /// @param shortest lanes idle for less than this are skipped
    /// @param longest lanes idle for longer than this are closed
    void sweep(Duration shortest, Duration longest) {
        long now = System.nanoTime();
        List<Lane> rested = new ArrayList<>(most); // sized for all: adding never allocates
        slots.forEach(lane -> {
            if (now - lane.restingSince >= shortest.toNanos() && slots.removeAny(lane)) {
                rested.add(lane); // may have been used just now
            }
        });
        lock.lock();
        try {
            for (int left = idle.size(); left > 0; left--) { // once around, without an iterator
                Lane lane = idle.removeFirst();
                if (now - lane.restingSince >= shortest.toNanos()) {
                    rested.add(lane);
                } else {
                    idle.addLast(lane);
                }
            }
        } finally {
            lock.unlock();
        }
        for (int i = 0; i < rested.size(); i++) {
            Lane lane = rested.get(i);
            boolean fit = now - lane.restingSince < longest.toNanos() && !isStale(lane);
            if (!rests(lane, fit)) {
                end(lane);
            }
        }
    }

    private static boolean isStale(Lane lane) {
        try {
            return lane.wire.isStale();
        } catch (RuntimeException | Error _) { // the others are still to be looked at
            return true;
        }
    }

    /// Returns a checked lane to the pool; false if the caller must close it.
    private boolean rests(Lane lane, boolean fit) {
        lock.lock();
        try {
            boolean kept = fit && !closed;
            if (kept) {
                idle.addLast(lane);
            } else {
                lanes--;
                used(lane.restingSince);
            }
            serveWaiters();
            return kept;
        } finally {
            lock.unlock();
        }
    }

    /// Whether there is no lane, and was none in use for so long.
    boolean isUnused(Duration since) {
        lock.lock();
        try {
            return lanes == 0 && System.nanoTime() - lastUse >= since.toNanos();
        } finally {
            lock.unlock();
        }
    }

    /// Connections, resting or in use.
    int lanes() {
        lock.lock();
        try {
            return lanes;
        } finally {
            lock.unlock();
        }
    }

    /// Lets those who wait for a lane see that their job has ended.
    void wakeWaiters() {
        lock.lock();
        try {
            waiters.forEach(waiter -> waiter.turn.signal());
        } finally {
            lock.unlock();
        }
    }

    /// Closes the idle lanes. Those in use are closed when they are returned.
    void close() {
        Lane rested = closeOne();
        while (rested != null) {
            end(rested);
            rested = closeOne();
        }
    }

    private static void end(Lane lane) {
        try {
            lane.wire.close();
        } catch (RuntimeException | Error e) { // such as no memory; others are still to be ended
            LoopReport.WARN.log(LOG, "a connection did not close", e);
        }
    }

    /// An idle lane, no longer counted, which the caller must close.
    private @Nullable Lane closeOne() {
        lock.lock();
        try {
            closed = true; // before the look at the slots, as in #give the other way round
            Lane lane = any();
            if (lane != null) {
                lanes--;
            }
            serveWaiters();
            return lane;
        } finally {
            lock.unlock();
        }
    }
}
