// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.internal.memory.UseGate;
import io.kvferry.spi.Deadline;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/// The lanes of this process in a peer's control page: whoever copies holds one and announces each
/// copy in it, see [ControlPage].
///
/// Threading: any thread; a lane belongs to whoever entered it.
public final class SharedLanes {
    private final ControlPage control;
    private final int user;
    private final UseGate gate = new UseGate();
    private final AtomicInteger free = new AtomicInteger((1 << ControlPage.LANES) - 1);
    private final AtomicLong copies = new AtomicLong();

    /// @param user whose lanes they are; nobody else writes them
    SharedLanes(ControlPage control, int user) {
        this.control = control;
        this.user = user;
        for (int lane = 0; lane < ControlPage.LANES; lane++) {
            control.setWord(user, lane, 0);
        }
    }

    /// -1 when all are in use, or after [#close].
    public int enter() {
        if (!gate.enter()) {
            return -1;
        }
        int lane = take();
        if (lane < 0) {
            gate.exit();
        } else {
            control.setLaneGrant(user, lane, ControlPage.ANY_GRANT);
        }
        return lane;
    }

    /// Before what the copy needs is looked at. It ends the copy that was announced before.
    public void announce(int lane) {
        control.setWord(user, lane, copies.incrementAndGet());
    }

    /// Copies until [#exit] belong to this grant alone: nobody who closes another one need wait for
    /// it.
    public void under(int lane, int grant) {
        control.setLaneGrant(user, lane, grant);
    }

    public void exit(int lane) {
        control.setWord(user, lane, 0);
        free.getAndUpdate(seen -> seen | 1 << lane);
        gate.exit();
    }

    private int take() {
        while (true) {
            int seen = free.get();
            int lane = Integer.numberOfTrailingZeros(seen);
            if (seen == 0) {
                return -1;
            }
            if (free.compareAndSet(seen, seen & ~(1 << lane))) {
                return lane;
            }
        }
    }

    public boolean isClosed() {
        return gate.isClosed();
    }

    /// No more copies; false when it was closed before.
    boolean close() {
        return gate.close();
    }

    /// After [#close]: whether the last copy ended in time.
    boolean awaitIdle(Deadline deadline) {
        return gate.awaitIdle(deadline);
    }
}
