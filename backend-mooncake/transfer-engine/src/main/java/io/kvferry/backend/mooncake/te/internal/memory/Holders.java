// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.ThreadSlots;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/// Everything that may be moving bytes at the moment, so that it can be aborted when memory is
/// unregistered.
public final class Holders {
    /// A piece of work that holds gates.
    public interface Holder {
        boolean holds(UseGate gate);

        /// Ends the work soon, from any thread.
        void abort();
    }

    private static final Duration LOOK_AGAIN = Duration.ofMillis(50);

    /// Those that begin and end in one thread.
    private final ThreadSlots<Holder> running = new ThreadSlots<>();

    private final Set<Holder> others = ConcurrentHashMap.newKeySet();

    /// For work that this thread ends with [#end].
    public void begin(Holder holder) {
        if (!running.put(holder)) {
            others.add(holder);
        }
    }

    public void end(Holder holder) {
        if (!running.remove(holder)) {
            others.remove(holder);
        }
    }

    /// For work that ends in another thread, or lasts.
    public void add(Holder holder) {
        others.add(holder);
    }

    public void remove(Holder holder) {
        others.remove(holder);
    }

    private void forEach(Consumer<Holder> act) {
        running.forEach(act);
        others.forEach(act);
    }

    public void abortAll() {
        forEach(Holder::abort);
    }

    /// Closes a gate and waits until it is empty; holders that take longer than `patience` are
    /// aborted.
    public void drain(UseGate gate, Duration patience) {
        gate.close();
        if (gate.isOver() || gate.awaitIdle(Deadline.in(patience))) { // isOver allocates nothing
            return;
        }
        do {
            forEach(holder -> {
                if (holder.holds(gate)) {
                    holder.abort();
                }
            });
        } while (!gate.awaitIdle(Deadline.in(LOOK_AGAIN)));
    }
}
