// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/// Everything that may be moving bytes at the moment, so that whoever takes memory away can cut it
/// off.
public final class Holders {
    /// A piece of work that holds gates.
    public interface Holder {
        boolean holds(UseGate gate);

        /// Ends the work soon, from any thread.
        void abort();
    }

    private static final Duration LOOK_AGAIN = Duration.ofMillis(50);

    private final Set<Holder> holders = ConcurrentHashMap.newKeySet();

    public void add(Holder holder) {
        holders.add(holder);
    }

    public void remove(Holder holder) {
        holders.remove(holder);
    }

    public void abortAll() {
        for (Holder holder : holders) {
            holder.abort();
        }
    }

    /// Closes a gate and waits until nobody is inside; who takes longer than `patience` is cut off.
    public void drain(UseGate gate, Duration patience) {
        gate.close();
        if (gate.awaitIdle(Deadline.in(patience))) {
            return;
        }
        do {
            for (Holder holder : holders) {
                if (holder.holds(gate)) {
                    holder.abort();
                }
            }
        } while (!gate.awaitIdle(Deadline.in(LOOK_AGAIN)));
    }
}
