// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/// Which backend failed lately with which peer. One that did is tried last for a while that doubles
/// with each failure (0.1 s to 30 s); its next success clears it. Faults of one pair never touch
/// another.
///
/// Threading: any thread.
final class HealthBook {
    private static final long FIRST_NANOS = 100_000_000L;
    private static final int MOST_DOUBLINGS = 8;
    private static final long MOST_NANOS = 30_000_000_000L;

    private record Key(String backend, String peer) {}

    private record Fault(int failures, long until) {}

    private final LongSupplier clock;
    private final Map<Key, Fault> faults = new ConcurrentHashMap<>();

    HealthBook(LongSupplier clock) {
        this.clock = clock;
    }

    boolean healthy(String backend, String peer) {
        var fault = faults.get(new Key(backend, peer));
        return fault == null || clock.getAsLong() - fault.until() >= 0;
    }

    void failed(String backend, String peer) {
        long now = clock.getAsLong();
        faults.compute(
                new Key(backend, peer),
                (_, old) -> {
                    int failures = old == null ? 1 : old.failures() + 1;
                    long pause =
                            Math.min(
                                    MOST_NANOS,
                                    FIRST_NANOS << Math.min(MOST_DOUBLINGS, failures - 1));
                    return new Fault(failures, now + pause);
                });
    }

    void succeeded(String backend, String peer) {
        faults.remove(new Key(backend, peer));
    }

    void forget(String peer) {
        faults.keySet().removeIf(key -> key.peer().equals(peer));
    }
}
