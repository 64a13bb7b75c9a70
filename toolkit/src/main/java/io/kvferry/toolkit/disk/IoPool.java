// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import java.util.function.Supplier;

/// Two bounded queues of file I/O, reads before writes, and the idle threads that wait for them.
///
/// A fixed set of tasks circulates: [#claim], prepare, [#submit], [#take], [#recycle]. A monitor
/// and park/unpark keep waiting free of garbage.
///
/// Threading: any thread.
///
/// @param <T> the tasks of one store
public final class IoPool<T extends IoTask> {
    /// Which queues a thread serves.
    public enum Role {
        READER,
        /// Reads when no reader is free to, else writes.
        HELPER,
        /// Writes only, so that a flood of reads cannot hold them up.
        WRITER;

        /// The role of thread `number` of a pool whose first threads read.
        public static Role of(int number, int readThreads) {
            if (number < readThreads) {
                return READER;
            }
            return number == readThreads ? WRITER : HELPER;
        }
    }

    /// An I/O thread as the queue sees it.
    public static final class ParkedWorker {
        private final Role role;
        private final Thread thread;
        private volatile boolean waiting;

        public ParkedWorker(Role role, Thread thread) {
            this.role = role;
            this.thread = thread;
        }
    }

    private final Ring<T> reads;
    private final Ring<T> writes;
    private final List<T> all = new ArrayList<>();
    private final List<ParkedWorker> idleReaders;
    private final List<ParkedWorker> idleHelpers;
    private final List<ParkedWorker> idleWriters;
    private boolean closed;
    private int active;

    /// Lower bound, as [System#nanoTime], of the deadlines of all queued or running tasks; the task
    /// that had it may be gone. Undefined while `unwatched`.
    private long firstDeadline;

    /// Whether no queued or running task has a deadline that [#expire] must check.
    private boolean unwatched = true;

    /// @param depth tasks of each kind that may wait
    /// @param threads that will serve them
    public IoPool(int depth, int threads, Supplier<T> tasks) {
        // Tasks in service keep theirs, so that many more exist than may wait.
        this.reads = new Ring<>(depth, depth + threads, tasks);
        this.writes = new Ring<>(depth, depth + threads, tasks);
        // Large enough: a thread that parks must not need memory.
        this.idleReaders = new ArrayList<>(threads);
        this.idleHelpers = new ArrayList<>(threads);
        this.idleWriters = new ArrayList<>(threads);
        all.addAll(reads.free);
        all.addAll(writes.free);
    }

    /// A free task to prepare and [#submit]; null when the queue of its kind is full or closed.
    public synchronized @Nullable T claim(boolean read) {
        Ring<T> ring = read ? reads : writes;
        if (closed || ring.waiting + ring.claimed >= ring.slots.size() || ring.free.isEmpty()) {
            return null;
        }
        ring.claimed++;
        active++;
        return ring.free.removeLast();
    }

    /// Queues a claimed and prepared task.
    public void submit(T task, boolean read) {
        ParkedWorker woken = null;
        synchronized (this) {
            (read ? reads : writes).add(task);
            watch(task.deadlineNanos());
            if (nothingComes()) {
                wakeAll();
            } else {
                woken = wake(read ? idleReaders : idleWriters);
            }
        }
        if (woken != null) {
            LockSupport.unpark(woken.thread);
        }
    }

    /// Waits for the next task; null when the pool is closed and the queue empty.
    public @Nullable T take(ParkedWorker worker) {
        while (true) {
            T task;
            ParkedWorker other = null;
            synchronized (this) {
                boolean readsWait = reads.waiting > 0;
                task = poll(worker.role);
                if (task == null) {
                    if (nothingComes()) {
                        return null;
                    }
                    worker.waiting = true;
                    idle(worker.role).add(worker);
                } else if (readsWait && worker.role == Role.HELPER && writes.waiting > 0) {
                    other = wake(idleWriters); // it may have been woken for the write
                }
            }
            if (other != null) {
                LockSupport.unpark(other.thread);
            }
            if (task != null) {
                return task;
            }
            while (worker.waiting) {
                LockSupport.park(this);
            }
        }
    }

    /// Gives a task back once its thread no longer uses it.
    public synchronized void recycle(T task, boolean read) {
        task.free();
        (read ? reads : writes).free.add(task);
        if (--active == 0) {
            notifyAll();
        }
    }

    /// Refuses new tasks; threads leave once the queues are empty.
    public synchronized void close() {
        closed = true;
        wakeAll();
        notifyAll();
    }

    /// Whether no task will be queued any more. With the monitor held.
    private boolean nothingComes() {
        return closed && reads.claimed + writes.claimed == 0;
    }

    /// Wakes all idle threads. The monitor must be held. Must not allocate: a thread not woken here
    /// would never exit.
    private void wakeAll() {
        wakeAll(idleReaders);
        wakeAll(idleHelpers);
        wakeAll(idleWriters);
    }

    private static void wakeAll(List<ParkedWorker> idle) {
        while (!idle.isEmpty()) {
            ParkedWorker woken = idle.removeLast();
            woken.waiting = false;
            LockSupport.unpark(woken.thread);
        }
    }

    /// Ends every task whose deadline has passed, queued or running. Called by one thread at a
    /// time. Skips the scan until a deadline has passed: there are many tasks, and scanning them
    /// would pollute the CPU caches used by the copying threads.
    public void expire(long now) {
        synchronized (this) {
            if (unwatched || firstDeadline - now > 0) {
                return;
            }
            unwatched = true; // from here on submit() notes what this pass may not see
        }
        try {
            for (int i = 0; i < all.size(); i++) {
                T task = all.get(i);
                if (task.expire(now)) {
                    noteDeadline(task.deadlineNanos());
                }
            }
        } catch (RuntimeException | Error e) {
            noteDeadline(now); // the pass has not seen all: once more
            throw e;
        }
    }

    private synchronized void noteDeadline(long deadlineNanos) {
        watch(deadlineNanos);
    }

    /// With the monitor held.
    private void watch(long deadlineNanos) {
        if (unwatched || deadlineNanos - firstDeadline < 0) {
            firstDeadline = deadlineNanos;
            unwatched = false;
        }
    }

    /// Tasks in this state at the moment, free ones included.
    public int count(Predicate<? super T> state) {
        return (int) all.stream().filter(state).count();
    }

    /// Waits until nothing is queued or in service; false when `nanos` were not enough.
    public synchronized boolean awaitIdle(long nanos) throws InterruptedException {
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

    private @Nullable T poll(Role role) {
        return switch (role) {
            case READER -> reads.poll();
            case WRITER -> writes.poll();
            case HELPER -> {
                T read = reads.poll();
                yield read != null ? read : writes.poll();
            }
        };
    }

    private List<ParkedWorker> idle(Role role) {
        return switch (role) {
            case READER -> idleReaders;
            case HELPER -> idleHelpers;
            case WRITER -> idleWriters;
        };
    }

    /// Takes one of these, or a helper, out of the idle ones; the caller unparks it.
    private @Nullable ParkedWorker wake(List<ParkedWorker> workers) {
        ParkedWorker woken = pollIdle(workers);
        if (woken == null) {
            woken = pollIdle(idleHelpers);
        }
        if (woken != null) {
            woken.waiting = false;
        }
        return woken;
    }

    private static @Nullable ParkedWorker pollIdle(List<ParkedWorker> workers) {
        return workers.isEmpty() ? null : workers.removeLast();
    }

    /// A bounded first-in-first-out of tasks and the stock of free ones.
    private static final class Ring<T> {
        private final List<@Nullable T> slots;
        private final ArrayList<T> free = new ArrayList<>();
        private int head;
        private int waiting;
        private int claimed;

        Ring(int depth, int tasks, Supplier<T> supplier) {
            slots = new ArrayList<@Nullable T>(Collections.<@Nullable T>nCopies(depth, null));
            for (int i = 0; i < tasks; i++) {
                free.add(supplier.get());
            }
        }

        void add(T task) {
            claimed--;
            slots.set((head + waiting++) % slots.size(), task);
        }

        @Nullable T poll() {
            if (waiting == 0) {
                return null;
            }
            T task = slots.get(head);
            head = (head + 1) % slots.size();
            waiting--;
            return task;
        }
    }
}
