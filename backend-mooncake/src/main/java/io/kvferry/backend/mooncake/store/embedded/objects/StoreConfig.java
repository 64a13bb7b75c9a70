// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import java.time.Duration;
import java.util.function.LongSupplier;

/// How an embedded store behaves. The defaults are those of Mooncake's master.
///
/// @param leaseTime that a lookup or read grants
/// @param renewLeases whether a read of a batch prolongs its leases rather than fail with
///   LEASE_EXPIRED. Mooncake does not
/// @param putDiscard after which an unfinished put can be replaced by another
/// @param putRelease after which the memory of a replaced put is used again, if its writer has not
///   ended or revoked it before: until then it may still write to it
/// @param highWatermark share of the memory in use above which objects are evicted
/// @param evictionRatio share of the objects that one eviction takes at least
/// @param evictSoftPinned whether an eviction may take soft-pinned objects when nothing else is
///   left
/// @param clientTime after which the segments of a client that does not ping are unmounted
/// @param checksums whether objects carry a CRC32C, made by puts and checked by gets. A copy within
///   one process has no other protection, and costs about half as much without
/// @param heapBytes what all objects may cost on the heap, as [StoredObject#heapBytes] estimates
///   it: their keys and groups, and what the store knows of each. Objects that are on disk only
///   count
/// @param clock monotonic nanoseconds
/// @param tick pause between two looks for something to evict; zero for a store that does so only
///   when `EmbeddedStore.tick` is called
public record StoreConfig(
        Duration leaseTime,
        boolean renewLeases,
        Duration putDiscard,
        Duration putRelease,
        double highWatermark,
        double evictionRatio,
        boolean evictSoftPinned,
        Duration clientTime,
        boolean checksums,
        long heapBytes,
        LongSupplier clock,
        Duration tick) {
    /// Part of the largest heap that the objects of one store may cost by default.
    private static final int PART_OF_HEAP = 4;

    private static final Duration NEVER = Duration.ofDays(36_500);

    /// Mooncake's defaults, and leases that are renewed.
    public static final StoreConfig DEFAULT =
            new StoreConfig(
                    Duration.ofSeconds(10),
                    true,
                    Duration.ofSeconds(30),
                    Duration.ofSeconds(600),
                    0.90,
                    0.05,
                    true,
                    Duration.ofSeconds(10),
                    false,
                    Runtime.getRuntime().maxMemory() / PART_OF_HEAP,
                    System::nanoTime,
                    Duration.ofMillis(10));

    public StoreConfig {
        if (highWatermark <= 0 || highWatermark > 1 || evictionRatio < 0 || evictionRatio > 1) {
            throw new IllegalArgumentException(
                    "highWatermark "
                            + highWatermark
                            + " is not in (0, 1] or evictionRatio "
                            + evictionRatio
                            + " is not in [0, 1]");
        }
        if (heapBytes <= 0) {
            throw new IllegalArgumentException("heapBytes " + heapBytes + " are not positive");
        }
        if (leaseTime.isNegative() || tick.isNegative() || putDiscard.compareTo(putRelease) > 0) {
            throw new IllegalArgumentException(
                    "negative time, or putDiscard " + putDiscard + " beyond " + putRelease);
        }
    }

    public StoreConfig withLeases(Duration time, boolean renew) {
        return new StoreConfig(
                time,
                renew,
                putDiscard,
                putRelease,
                highWatermark,
                evictionRatio,
                evictSoftPinned,
                clientTime,
                checksums,
                heapBytes,
                clock,
                tick);
    }

    public StoreConfig withEviction(double watermark, double ratio, boolean softPinned) {
        return new StoreConfig(
                leaseTime,
                renewLeases,
                putDiscard,
                putRelease,
                watermark,
                ratio,
                softPinned,
                clientTime,
                checksums,
                heapBytes,
                clock,
                tick);
    }

    public StoreConfig withChecksums(boolean on) {
        return new StoreConfig(
                leaseTime,
                renewLeases,
                putDiscard,
                putRelease,
                highWatermark,
                evictionRatio,
                evictSoftPinned,
                clientTime,
                on,
                heapBytes,
                clock,
                tick);
    }

    public StoreConfig withHeap(long bytes) {
        return new StoreConfig(
                leaseTime,
                renewLeases,
                putDiscard,
                putRelease,
                highWatermark,
                evictionRatio,
                evictSoftPinned,
                clientTime,
                checksums,
                bytes,
                clock,
                tick);
    }

    /// The memory of a replaced put is used again only when its writer has ended or revoked it.
    public StoreConfig withoutPutRelease() {
        return new StoreConfig(
                leaseTime,
                renewLeases,
                putDiscard,
                NEVER,
                highWatermark,
                evictionRatio,
                evictSoftPinned,
                clientTime,
                checksums,
                heapBytes,
                clock,
                tick);
    }

    /// Another clock, and no thread: `EmbeddedStore.tick` is called by whoever moves the clock.
    public StoreConfig steppedBy(LongSupplier nanos) {
        return new StoreConfig(
                leaseTime,
                renewLeases,
                putDiscard,
                putRelease,
                highWatermark,
                evictionRatio,
                evictSoftPinned,
                clientTime,
                checksums,
                heapBytes,
                nanos,
                Duration.ZERO);
    }
}
