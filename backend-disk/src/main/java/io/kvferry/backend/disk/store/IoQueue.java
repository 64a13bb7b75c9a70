// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Two bounded queues, reads before writes, and the idle threads that wait for them.
///
/// A fixed set of requests circulates; a monitor and park/unpark keep waiting free of garbage.
///
/// Threading: any thread.
final class IoQueue {
    /// Which queues a thread serves.
    enum Role {
        READER,
        /// Reads when no reader is free to, else writes.
        HELPER,
        /// Writes only, so that a flood of reads cannot starve them for ever.
        WRITER
    }

    /// What a waiting thread shows to the queue.
    static final class Seat {
        private final Role role;
        private final Thread thread;
        private volatile boolean waiting;

        Seat(Role role, Thread thread) {
            this.role = role;
            this.thread = thread;
        }
    }

    private final Ring reads;
    private final Ring writes;
    private final List<IoRequest> all = new ArrayList<>();
    private final List<Seat> idleReaders = new ArrayList<>();
    private final List<Seat> idleHelpers = new ArrayList<>();
    private final List<Seat> idleWriters = new ArrayList<>();
    private boolean closed;
    private int active;

    IoQueue(int depth, int threads) {
        // Requests in service keep theirs, so that many more exist than may wait.
        this.reads = new Ring(depth, depth + threads);
        this.writes = new Ring(depth, depth + threads);
        all.addAll(reads.free);
        all.addAll(writes.free);
    }

    /// Queues a request; false when the queue of its kind is full or closed, and then nothing was
    /// kept.
    boolean offer(
            IoRequest.Kind kind,
            @Nullable BlockKey key,
            List<MemorySegment> segments,
            List<BlockKey> keys,
            long deadlineNanos,
            BlockCallback callback,
            long tag) {
        boolean read = kind != IoRequest.Kind.SAVE;
        Seat woken;
        synchronized (this) {
            Ring ring = read ? reads : writes;
            if (closed || ring.waiting == ring.slots.length || ring.free.isEmpty()) {
                return false;
            }
            IoRequest request = ring.free.removeLast();
            request.prepare(kind, key, segments, keys, deadlineNanos, callback, tag);
            ring.add(request);
            active++;
            woken = pollSeat(read ? idleReaders : idleWriters);
            if (woken == null) {
                woken = pollSeat(idleHelpers);
            }
            if (woken != null) {
                woken.waiting = false;
            }
        }
        if (woken != null) {
            LockSupport.unpark(woken.thread);
        }
        return true;
    }

    /// Waits for the next request; null when the queue is closed and empty.
    @Nullable IoRequest take(Seat seat) {
        while (true) {
            synchronized (this) {
                IoRequest request = poll(seat.role);
                if (request != null || closed) {
                    return request;
                }
                seat.waiting = true;
                idle(seat.role).add(seat);
            }
            while (seat.waiting) {
                LockSupport.park(this);
            }
        }
    }

    /// Gives a request back once its thread is through with it.
    synchronized void recycle(IoRequest request) {
        Ring ring = request.kind() == IoRequest.Kind.SAVE ? writes : reads;
        request.clear();
        ring.free.add(request);
        if (--active == 0) {
            notifyAll();
        }
    }

    /// Refuses new requests; threads leave once the queues are empty.
    void close() {
        List<Seat> woken;
        synchronized (this) {
            closed = true;
            woken = new ArrayList<>(idleReaders);
            woken.addAll(idleHelpers);
            woken.addAll(idleWriters);
            idleReaders.clear();
            idleHelpers.clear();
            idleWriters.clear();
            woken.forEach(seat -> seat.waiting = false);
            notifyAll();
        }
        woken.forEach(seat -> LockSupport.unpark(seat.thread));
    }

    /// Every request that will ever circulate, for the deadline thread to look at.
    List<IoRequest> all() {
        return all;
    }

    /// Requests queued or in service.
    synchronized int active() {
        return active;
    }

    /// Requests whose thread hangs in the file system although their caller was answered.
    int stalled() {
        return (int) all.stream().filter(IoRequest::stalled).count();
    }

    /// Waits until nothing is queued or in service; false when `nanos` were not enough.
    synchronized boolean awaitIdle(long nanos) throws InterruptedException {
        long end = System.nanoTime() + nanos;
        while (active > 0) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            TimeUnit.NANOSECONDS.timedWait(this, left);
        }
        return true;
    }

    private @Nullable IoRequest poll(Role role) {
        return switch (role) {
            case READER -> reads.poll();
            case WRITER -> writes.poll();
            case HELPER -> {
                IoRequest read = reads.poll();
                yield read != null ? read : writes.poll();
            }
        };
    }

    private List<Seat> idle(Role role) {
        return switch (role) {
            case READER -> idleReaders;
            case HELPER -> idleHelpers;
            case WRITER -> idleWriters;
        };
    }

    private static @Nullable Seat pollSeat(List<Seat> seats) {
        return seats.isEmpty() ? null : seats.removeLast();
    }

    /// A bounded first-in-first-out of requests and the stock of free ones.
    private static final class Ring {
        private final IoRequest[] slots;
        private final ArrayList<IoRequest> free = new ArrayList<>();
        private int head;
        private int waiting;

        Ring(int depth, int requests) {
            slots = new IoRequest[depth];
            for (int i = 0; i < requests; i++) {
                free.add(new IoRequest());
            }
        }

        void add(IoRequest request) {
            slots[(head + waiting++) % slots.length] = request;
        }

        @Nullable IoRequest poll() {
            if (waiting == 0) {
                return null;
            }
            IoRequest request = slots[head];
            head = (head + 1) % slots.length;
            waiting--;
            return request;
        }
    }
}
