// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.internal.memory.UseGate;
import io.kvferry.spi.Deadline;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// The marks of this process in a peer's control page. A thread that copies holds a mark and
/// announces each copy in it, see [ControlPage].
///
/// Threading: any thread; a mark belongs to the thread that took it.
public final class CopyMarks {
    private static final long LOOK_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    private final ControlPage control;
    private final int user;
    private final UseGate gate = new UseGate();
    private final AtomicInteger free = new AtomicInteger((1 << ControlPage.MARKS) - 1);
    private final AtomicLong copies = new AtomicLong();
    private final Runnable over;

    CopyMarks(ControlPage control, int user) {
        this(control, user, () -> {});
    }

    /// @param user whose marks they are; no other user writes them
    /// @param over run by the last copy after [#close]; possibly by several copies that end
    ///   together
    CopyMarks(ControlPage control, int user, Runnable over) {
        this.control = control;
        this.user = user;
        this.over = over;
        for (int mark = 0; mark < ControlPage.MARKS; mark++) {
            control.setWord(user, mark, 0);
        }
    }

    /// -1 when all are in use, or after [#close].
    public int enter() {
        if (!gate.enter()) {
            return -1;
        }
        int mark = take();
        if (mark < 0) {
            leave();
        } else {
            control.setMarkGrant(user, mark, ControlPage.ANY_GRANT);
        }
        return mark;
    }

    /// Before what the copy needs is looked at. It ends the copy that was announced before.
    public void announce(int mark) {
        control.setWord(user, mark, copies.incrementAndGet());
    }

    /// Attributes copies until [#exit] to this grant. Closing another grant need not wait for them.
    public void under(int mark, int grant) {
        control.setMarkGrant(user, mark, grant);
    }

    public void exit(int mark) {
        control.setWord(user, mark, 0);
        free.getAndUpdate(seen -> seen | 1 << mark);
        leave();
    }

    private void leave() {
        gate.exit();
        if (gate.isOver()) {
            over.run();
        }
    }

    private int take() {
        while (true) {
            int seen = free.get();
            int mark = Integer.numberOfTrailingZeros(seen);
            if (seen == 0) {
                return -1;
            }
            if (free.compareAndSet(seen, seen & ~(1 << mark))) {
                return mark;
            }
        }
    }

    /// Whether each copy that was announced when this was called has ended in time. It may wait for
    /// some that were announced later.
    boolean awaitAnnounced(Deadline deadline) {
        for (int mark = 0; mark < ControlPage.MARKS; mark++) {
            long seen = control.word(user, mark);
            while (seen != 0 && control.word(user, mark) == seen) {
                if (gate.isOver()) { // the marks may be the next user's by now
                    return true;
                }
                if (deadline.passed()) {
                    return false;
                }
                LockSupport.parkNanos(LOOK_AGAIN_NANOS);
            }
        }
        return true;
    }

    public boolean isClosed() {
        return gate.isClosed();
    }

    /// No more copies; false when it was closed before.
    boolean close() {
        return gate.close();
    }

    /// As [#close], but only if no copy is in progress; otherwise returns false.
    boolean closeIfIdle() {
        return gate.closeIfIdle();
    }

    /// After [#close]: whether the last copy has ended.
    boolean isOver() {
        return gate.isOver();
    }

    /// After [#close]: whether the last copy ended in time.
    boolean awaitIdle(Deadline deadline) {
        return gate.awaitIdle(deadline);
    }
}
