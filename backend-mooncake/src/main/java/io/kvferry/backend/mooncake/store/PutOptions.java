// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import java.time.Duration;
import java.util.List;

/// How objects are stored: Mooncake's `ReplicateConfig`. Groups are named per key, in
/// [StoreBatch#add].
///
/// @param replicas wanted, at least 1; a store gives as many as it can
/// @param softPin keeps the objects out of the first pass of an eviction for so long; zero for not
/// @param hardPin never evicted; can still be removed
/// @param preferredSegments tried in this order; one that is unknown or full is skipped
public record PutOptions(
        int replicas, Duration softPin, boolean hardPin, List<String> preferredSegments) {
    /// Mooncake's longest soft pin.
    public static final Duration LONGEST_SOFT_PIN = Duration.ofHours(24);

    /// One replica anywhere, without a pin.
    public static final PutOptions DEFAULT = new PutOptions(1, Duration.ZERO, false, List.of());

    public PutOptions {
        preferredSegments = List.copyOf(preferredSegments);
    }

    /// Whether a store takes them; what it does not take is INVALID_PARAMS.
    public boolean areValid() {
        return replicas >= 1 && !softPin.isNegative() && softPin.compareTo(LONGEST_SOFT_PIN) <= 0;
    }

    public PutOptions preferring(String... segments) {
        return new PutOptions(replicas, softPin, hardPin, List.of(segments));
    }

    public PutOptions softPinned(Duration time) {
        return new PutOptions(replicas, time, hardPin, preferredSegments);
    }

    public PutOptions hardPinned() {
        return new PutOptions(replicas, softPin, true, preferredSegments);
    }
}
