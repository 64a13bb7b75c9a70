// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.Operation;

import java.util.Map;
import java.util.OptionalDouble;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/// Experience with each pair of backend and peer, from the transfers so far.
///
/// - *Cost*: what transfers really took in relation to what the backend had estimated, a moving
///   average per operation and size class (powers of two).
/// - *Health*: a pair that failed is tried last for a while that doubles with each failure (0.1 s
///   to 30 s); its next success clears it. Faults of one pair never touch another.
///
/// Threading: any thread.
final class TrackRecord {
    /// Weight of the newest measurement: some ten transfers to follow a change.
    private static final double ALPHA = 0.2;

    /// One slow or lucky transfer must not decide for long.
    private static final double MOST = 1_000;

    /// Cost assumed for a backend that gives no estimate, until it is measured: a slow network with
    /// 100 us per transfer and 1 GB/s.
    private static final long GUESS_NANOS = 100_000;

    private static final int MOST_ENTRIES = 65_536;

    private static final long FIRST_PAUSE_NANOS = 100_000_000L;
    private static final int MOST_DOUBLINGS = 8;
    private static final long MOST_PAUSE_NANOS = 30_000_000_000L;

    private record CostKey(String backend, Operation operation, String peer, int sizeClass) {}

    private record HealthKey(String backend, String peer) {}

    private record Fault(int failures, long until) {}

    private final LongSupplier clock;
    private final Map<CostKey, Double> ratios = new ConcurrentHashMap<>();
    private final Map<HealthKey, Fault> faults = new ConcurrentHashMap<>();

    TrackRecord(LongSupplier clock) {
        this.clock = clock;
    }

    /// The cost of a backend that names none.
    static long guess(long bytes) {
        return GUESS_NANOS + bytes;
    }

    private static CostKey key(String backend, Operation operation, String peer, long bytes) {
        return new CostKey(backend, operation, peer, Long.SIZE - Long.numberOfLeadingZeros(bytes));
    }

    /// Measured over estimated; empty when nothing like it was measured yet.
    OptionalDouble correction(String backend, Operation operation, String peer, long bytes) {
        var ratio = ratios.get(key(backend, operation, peer, bytes));
        return ratio == null ? OptionalDouble.empty() : OptionalDouble.of(ratio);
    }

    void measured(
            String backend,
            Operation operation,
            String peer,
            long bytes,
            long estimate,
            long nanos) {
        double ratio = Math.clamp((double) nanos / Math.max(1, estimate), 1 / MOST, MOST);
        var key = key(backend, operation, peer, bytes);
        if (ratios.size() < MOST_ENTRIES || ratios.containsKey(key)) {
            ratios.merge(key, ratio, (old, fresh) -> old + ALPHA * (fresh - old));
        }
    }

    boolean healthy(String backend, String peer) {
        var fault = faults.get(new HealthKey(backend, peer));
        return fault == null || clock.getAsLong() - fault.until() >= 0;
    }

    void failed(String backend, String peer) {
        long now = clock.getAsLong();
        faults.compute(
                new HealthKey(backend, peer),
                (_, old) -> {
                    int failures = old == null ? 1 : old.failures() + 1;
                    long pause =
                            Math.min(
                                    MOST_PAUSE_NANOS,
                                    FIRST_PAUSE_NANOS << Math.min(MOST_DOUBLINGS, failures - 1));
                    return new Fault(failures, now + pause);
                });
    }

    void succeeded(String backend, String peer) {
        faults.remove(new HealthKey(backend, peer));
    }

    /// Drops all measurements of a peer that is gone for good.
    void forget(String peer) {
        ratios.keySet().removeIf(key -> key.peer().equals(peer));
        faults.keySet().removeIf(key -> key.peer().equals(peer));
    }
}
