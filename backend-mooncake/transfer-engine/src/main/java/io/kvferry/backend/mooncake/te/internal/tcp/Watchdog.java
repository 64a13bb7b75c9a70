// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.toolkit.bounded.LastingLoop;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/// Gives blocking socket calls a deadline: it looks at every wire some 50 times a second and has
/// those closed that are overdue, which ends the call in progress. The hot path pays one volatile
/// store per system call for it.
///
/// A tick survives whatever its work throws; closing happens on other threads, since it may take
/// long.
public final class Watchdog implements AutoCloseable {
    static final Duration TICK = Duration.ofMillis(20);

    private static final Logger LOG = LoggerFactory.getLogger(Watchdog.class);

    private final Set<Wire> wires = ConcurrentHashMap.newKeySet();
    private final Set<BooleanSupplier> checks = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService clock;
    private volatile boolean closed;

    public Watchdog(String owner) {
        clock =
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform()
                                .name("kvferry-te-watchdog-" + owner)
                                .daemon()
                                .factory());
        var _ =
                clock.scheduleWithFixedDelay(
                        LastingLoop.repeated(this::tick),
                        TICK.toMillis(),
                        TICK.toMillis(),
                        TimeUnit.MILLISECONDS);
    }

    /// Runs a short check with every tick until it returns false.
    public void repeat(BooleanSupplier check) {
        checks.add(check);
    }

    void watch(Wire wire) {
        wires.add(wire);
        if (closed) {
            wire.expire();
        }
    }

    void forget(Wire wire) {
        wires.remove(wire);
    }

    private void tick() {
        try {
            long now = System.nanoTime();
            for (Wire wire : wires) {
                if (wire.condemn(now)) {
                    wires.remove(wire); // once is enough
                    expire(wire);
                } else {
                    wire.tick();
                }
            }
            checks.removeIf(check -> !runs(check));
        } catch (Throwable t) { // an escaping one would end all deadlines
            survive(t);
        }
    }

    private static void expire(Wire wire) {
        try {
            var _ = Thread.ofVirtual().name("kvferry-te-expire").start(wire::expire);
        } catch (Throwable t) { // no memory for a thread: late for the others is better than never
            wire.expire();
        }
    }

    /// A check that fails is tried again with the next tick.
    private static boolean runs(BooleanSupplier check) {
        try {
            return check.getAsBoolean();
        } catch (Throwable t) {
            survive(t);
            return true;
        }
    }

    private static void survive(Throwable t) {
        try {
            LOG.warn("a tick of the watchdog failed", t);
        } catch (Throwable again) {
            // Logging failed as well; the next tick runs in any case.
            Thread.onSpinWait();
        }
    }

    /// Ends the connections that are left, and those that come: none would have a deadline.
    @Override
    public void close() {
        closed = true;
        clock.shutdownNow();
        wires.forEach(Watchdog::expire);
    }
}
