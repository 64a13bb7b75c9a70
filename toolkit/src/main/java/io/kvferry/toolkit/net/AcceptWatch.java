// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.toolkit.bounded.LastingLoop;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The thread that supervises the accepting threads of a JVM. It ends when none are left, and only
/// then. An executor is not used because its thread ends if it cannot allocate its next wait, and
/// nothing restarts it.
///
/// Threading: any thread.
final class AcceptWatch {
    static final AcceptWatch OF_THIS_JVM = new AcceptWatch();

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final List<Look> looks = new ArrayList<>();
    private boolean running;

    private static final class Look {
        final Runnable look;
        final long pause;
        long due;

        Look(Runnable look, long pause) {
            this.look = look;
            this.pause = pause;
            this.due = System.nanoTime() + pause;
        }
    }

    private AcceptWatch() {}

    /// Has `look` run again and again, with such a pause in between.
    ///
    /// @return ends it, and may be run again
    Runnable every(long nanos, Runnable look) {
        var added = new Look(LastingLoop.repeated(look), nanos);
        lock.lock();
        try {
            looks.add(added);
            if (!running) {
                start(added);
            }
            changed.signal();
        } finally {
            lock.unlock();
        }
        return () -> remove(added);
    }

    private void start(Look first) {
        try {
            Thread.ofPlatform()
                    .name("kvferry-accept-watch")
                    .daemon()
                    .start(new LastingLoop(this::run));
            running = true;
        } finally {
            if (!running) {
                looks.remove(first);
            }
        }
    }

    private void remove(Look look) {
        lock.lock();
        try {
            looks.remove(look);
            changed.signal();
        } finally {
            lock.unlock();
        }
    }

    private void run() {
        for (var next = next(); next.isPresent(); next = next()) {
            var look = next.get();
            look.look.run();
            lock.lock();
            try {
                look.due = System.nanoTime() + look.pause;
            } finally {
                lock.unlock();
            }
        }
    }

    /// Waits for the next one that is due; empty when none is left, and the thread ends.
    private Optional<Look> next() {
        lock.lock();
        try {
            while (!looks.isEmpty()) {
                var first = looks.getFirst();
                for (var look : looks) {
                    first = look.due - first.due < 0 ? look : first;
                }
                long left = first.due - System.nanoTime();
                if (left <= 0) {
                    return Optional.of(first);
                }
                var _ = changed.awaitNanos(left);
            }
            running = false;
            return Optional.empty();
        } catch (InterruptedException e) { // left by a look
            throw new IllegalStateException("interrupted", e);
        } finally {
            lock.unlock();
        }
    }
}
