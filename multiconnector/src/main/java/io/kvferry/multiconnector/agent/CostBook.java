// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.Operation;

import java.util.Map;
import java.util.OptionalDouble;
import java.util.concurrent.ConcurrentHashMap;

/// What transfers really took, in relation to what the backend had estimated: a moving average per
/// backend, operation, peer and size class (powers of two).
///
/// Threading: any thread.
final class CostBook {
    /// Weight of the newest measurement: some ten transfers to follow a change.
    private static final double ALPHA = 0.2;

    /// One slow or lucky transfer must not decide for long.
    private static final double MOST = 1_000;

    /// A backend without any idea is taken for a slow network until it is measured: 100 us and 1
    /// GB/s.
    private static final long GUESS_NANOS = 100_000;

    private static final int MOST_ENTRIES = 65_536;

    private record Key(String backend, Operation operation, String peer, int sizeClass) {}

    private final Map<Key, Double> ratios = new ConcurrentHashMap<>();

    static long guess(long bytes) {
        return GUESS_NANOS + bytes;
    }

    static int sizeClass(long bytes) {
        return Long.SIZE - Long.numberOfLeadingZeros(bytes);
    }

    /// Measured over estimated; empty when nothing like it was measured yet.
    OptionalDouble correction(String backend, Operation operation, String peer, long bytes) {
        var ratio = ratios.get(new Key(backend, operation, peer, sizeClass(bytes)));
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
        var key = new Key(backend, operation, peer, sizeClass(bytes));
        if (ratios.size() < MOST_ENTRIES || ratios.containsKey(key)) {
            ratios.merge(key, ratio, (old, fresh) -> old + ALPHA * (fresh - old));
        }
    }

    /// A peer that is gone for good takes its measurements with it.
    void forget(String peer) {
        ratios.keySet().removeIf(key -> key.peer().equals(peer));
    }
}
