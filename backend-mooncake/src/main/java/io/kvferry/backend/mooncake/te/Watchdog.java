// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/// Gives blocking socket calls a deadline: it looks at every wire some 50 times a second and closes
/// those that are overdue, which ends the call in progress. The hot path pays one volatile store
/// per system call for it.
final class Watchdog implements AutoCloseable {
    static final Duration TICK = Duration.ofMillis(20);

    private static final Logger LOG = LoggerFactory.getLogger(Watchdog.class);

    private final Set<Wire> wires = ConcurrentHashMap.newKeySet();
    private final Set<BooleanSupplier> checks = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService clock;

    Watchdog(String owner) {
        clock =
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform()
                                .name("kvferry-te-watchdog-" + owner)
                                .daemon()
                                .factory());
        var _ =
                clock.scheduleWithFixedDelay(
                        this::tick, TICK.toMillis(), TICK.toMillis(), TimeUnit.MILLISECONDS);
    }

    /// Runs a short check with every tick until it returns false.
    void repeat(BooleanSupplier check) {
        checks.add(check);
    }

    void watch(Wire wire) {
        wires.add(wire);
    }

    void forget(Wire wire) {
        wires.remove(wire);
    }

    private void tick() {
        long now = System.nanoTime();
        for (Wire wire : wires) {
            if (wire.overdue(now)) {
                wire.expire();
            }
        }
        checks.removeIf(check -> !runs(check));
    }

    private static boolean runs(BooleanSupplier check) {
        try {
            return check.getAsBoolean();
        } catch (RuntimeException e) {
            LOG.warn("a check of the watchdog failed and is not repeated", e);
            return false;
        }
    }

    @Override
    public void close() {
        clock.shutdownNow();
    }
}
