// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.toolkit.disk.DirectIo;

import java.nio.file.Path;
import java.time.Duration;

/// The disk tier of a store. The defaults are those of Mooncake's owner.
///
/// @param folder of the bucket files, of this store alone
/// @param checkFolder whether to refuse a folder that another user owns, may write to or could
///   replace
/// @param totalBytes of all files; 0 for 90 % of the file system
/// @param bucketBytes of one bucket at most, and never more than a tenth of `totalBytes`; an object
///   that is larger gets a bucket of its own
/// @param bucketKeys objects of one bucket at most
/// @param eviction which bucket makes room for another
/// @param highWatermark share of `totalBytes` above which buckets are deleted
/// @param lowWatermark share down to which they are
/// @param stagingBytes memory through which objects are read, taken as it is needed
/// @param onEvict whether an object is written when it is evicted from memory, and not already when
///   its put ends
/// @param promoteAfter reads from disk after which an object is kept in memory again, where there
///   is room below the watermark; 0 for never
/// @param direct whether files bypass the page cache
/// @param interval how long objects wait for others to fill a bucket with
/// @param ioLimit longest time for one read or write; one that takes longer fails
/// @param retryAfter pause before the disk is tried again after it was full, slow or broken
/// @param readThreads reads at a time
public record TierConfig(
        Path folder,
        boolean checkFolder,
        long totalBytes,
        long bucketBytes,
        int bucketKeys,
        BucketEviction eviction,
        double highWatermark,
        double lowWatermark,
        long stagingBytes,
        boolean onEvict,
        int promoteAfter,
        DirectIo direct,
        Duration interval,
        Duration ioLimit,
        Duration retryAfter,
        int readThreads) {
    /// Mooncake's staging memory of an owner.
    public static final long STAGING_BYTES = 1280L << 20;

    public TierConfig {
        if (totalBytes < 0 || bucketBytes < 4096 || bucketKeys < 1 || stagingBytes < 4096) {
            throw new IllegalArgumentException(
                    "sizes of the disk tier: total "
                            + totalBytes
                            + ", bucket "
                            + bucketBytes
                            + " with "
                            + bucketKeys
                            + " keys, staging "
                            + stagingBytes);
        }
        if (lowWatermark <= 0 || lowWatermark > highWatermark || highWatermark > 1) {
            throw new IllegalArgumentException(
                    "watermarks of the disk tier: " + lowWatermark + ", " + highWatermark);
        }
        if (promoteAfter < 0 || readThreads < 1) {
            throw new IllegalArgumentException(
                    "promoteAfter " + promoteAfter + ", readThreads " + readThreads);
        }
    }

    /// Mooncake's defaults.
    public static TierConfig of(Path folder, long totalBytes) {
        return new TierConfig(
                folder,
                true,
                totalBytes,
                256L << 20,
                500,
                BucketEviction.LRU,
                0.90,
                0.80,
                STAGING_BYTES,
                false,
                0,
                DirectIo.AUTO,
                Duration.ofSeconds(1),
                Duration.ofSeconds(10),
                Duration.ofSeconds(10),
                8);
    }

    public TierConfig withBuckets(long bytes, int keys, BucketEviction policy) {
        return new TierConfig(
                folder,
                checkFolder,
                totalBytes,
                bytes,
                keys,
                policy,
                highWatermark,
                lowWatermark,
                stagingBytes,
                onEvict,
                promoteAfter,
                direct,
                interval,
                ioLimit,
                retryAfter,
                readThreads);
    }

    public TierConfig withCheckFolder(boolean check) {
        return new TierConfig(
                folder,
                check,
                totalBytes,
                bucketBytes,
                bucketKeys,
                eviction,
                highWatermark,
                lowWatermark,
                stagingBytes,
                onEvict,
                promoteAfter,
                direct,
                interval,
                ioLimit,
                retryAfter,
                readThreads);
    }

    public TierConfig withStaging(long bytes) {
        return new TierConfig(
                folder,
                checkFolder,
                totalBytes,
                bucketBytes,
                bucketKeys,
                eviction,
                highWatermark,
                lowWatermark,
                bytes,
                onEvict,
                promoteAfter,
                direct,
                interval,
                ioLimit,
                retryAfter,
                readThreads);
    }

    public TierConfig withMoves(boolean writeOnEvict, int promoteAfterReads) {
        return new TierConfig(
                folder,
                checkFolder,
                totalBytes,
                bucketBytes,
                bucketKeys,
                eviction,
                highWatermark,
                lowWatermark,
                stagingBytes,
                writeOnEvict,
                promoteAfterReads,
                direct,
                interval,
                ioLimit,
                retryAfter,
                readThreads);
    }

    public TierConfig withIo(DirectIo io, Duration fill, Duration limit, Duration retry) {
        return new TierConfig(
                folder,
                checkFolder,
                totalBytes,
                bucketBytes,
                bucketKeys,
                eviction,
                highWatermark,
                lowWatermark,
                stagingBytes,
                onEvict,
                promoteAfter,
                io,
                fill,
                limit,
                retry,
                readThreads);
    }
}
