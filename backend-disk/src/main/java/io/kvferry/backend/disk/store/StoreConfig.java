// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/// The configuration of a [BlockStore]. Start from [#of] and change what differs.
///
/// @param root folder that may be shared by processes and namespaces; made if absent
/// @param namespace canonical text of everything that makes bytes comparable (model, dtype, layout
///   version, ...); stores of different text never see each other's blocks, and each has its own
///   quota
/// @param checkFolder whether to refuse a root that another user owns, may write to or could
///   replace
/// @param key with which the blocks of this fleet are recognised; stores of different keys never
///   see each other's blocks, but share the folder and its quota
/// @param durability what a completed save survives
/// @param directIo whether to bypass the page cache
/// @param maxBlockBytes largest block accepted; bounds the staging memory of each thread
public record StoreConfig(
        Path root,
        String namespace,
        boolean checkFolder,
        FleetKey key,
        Space space,
        Durability durability,
        DirectIo directIo,
        Pools pools,
        long maxBlockBytes,
        Times times) {
    public static final long DEFAULT_QUOTA_BYTES = 16L << 30;

    /// At the top: room above them is capacity that finds nothing, and a save that evicts can write
    /// over the file of its victim, which is cheaper than a new one.
    public static final double DEFAULT_LOW_WATERMARK = 1;

    public static final double DEFAULT_HIGH_WATERMARK = 1;

    /// The reserve of Mooncake's offset allocator store.
    public static final long DEFAULT_RESERVE_BYTES = 256L << 20;

    public static final long DEFAULT_MAX_BLOCK_BYTES = 256L << 20;

    /// How much of the file system may be used.
    ///
    /// @param quotaBytes most bytes that the files of this namespace may take
    /// @param lowWatermark share of the quota at which eviction in the background stops
    /// @param highWatermark share of the quota above which it starts
    /// @param reserveBytes real free space of the file system that is never used
    public record Space(
            long quotaBytes, double lowWatermark, double highWatermark, long reserveBytes) {
        public Space {
            require(quotaBytes > 0, "quotaBytes", quotaBytes, "be positive");
            require(
                    0 < lowWatermark && lowWatermark <= highWatermark && highWatermark <= 1,
                    "watermarks",
                    lowWatermark + ", " + highWatermark,
                    "be 0 < low <= high <= 1");
            require(reserveBytes >= 0, "reserveBytes", reserveBytes, "not be negative");
        }
    }

    /// Who does the I/O.
    ///
    /// @param readThreads threads that only read
    /// @param writeThreads threads that write, and, all but one, help readers first
    /// @param queueDepth requests of each kind that may wait; one more is refused
    public record Pools(int readThreads, int writeThreads, int queueDepth) {
        public static final int MOST_THREADS = 64;

        public Pools {
            between(1, MOST_THREADS, "readThreads", readThreads);
            between(1, MOST_THREADS, "writeThreads", writeThreads);
            between(1, 1 << 16, "queueDepth", queueDepth);
        }

        private static void between(int least, int most, String field, int value) {
            require(least <= value && value <= most, field, value, "be " + least + " to " + most);
        }
    }

    /// @param io longest wait for one request, whatever deadline its caller gave
    /// @param verifyAfter age at which a remembered block is looked for on disk again, because
    ///   another process may have deleted it
    /// @param tempMaxAge age at which an unfinished file of a dead writer is deleted
    /// @param scanInterval time between two looks at the folder for what other processes did
    /// @param recency how often a block in use gets a new file time, which other processes and
    ///   later ones go by
    /// @param suppression how long lookups of a block miss after a read of its file failed; twice
    ///   as long after each further failure, up to an hour
    public record Times(
            Duration io,
            Duration verifyAfter,
            Duration tempMaxAge,
            Duration scanInterval,
            Duration recency,
            Duration suppression) {
        public static final Duration DEFAULT_SUPPRESSION = Duration.ofSeconds(5);

        /// With [#DEFAULT_SUPPRESSION].
        public Times(
                Duration io,
                Duration verifyAfter,
                Duration tempMaxAge,
                Duration scanInterval,
                Duration recency) {
            this(io, verifyAfter, tempMaxAge, scanInterval, recency, DEFAULT_SUPPRESSION);
        }

        public Times {
            positive("ioTimeout", io);
            positive("scanInterval", scanInterval);
            positive("recency", recency);
            positive("suppression", suppression);
            require(!verifyAfter.isNegative(), "verifyAfter", verifyAfter, "not be negative");
            require(!tempMaxAge.isNegative(), "tempMaxAge", tempMaxAge, "not be negative");
        }

        private static void positive(String field, Duration value) {
            require(!value.isNegative() && !value.isZero(), field, value, "be positive");
        }
    }

    public StoreConfig {
        Objects.requireNonNull(root, "root");
        Objects.requireNonNull(namespace, "namespace");
        Objects.requireNonNull(durability, "durability");
        Objects.requireNonNull(directIo, "directIo");
        require(!namespace.isEmpty(), "namespace", namespace, "not be empty");
        require(
                maxBlockBytes >= 1 && maxBlockBytes <= 1L << 30,
                "maxBlockBytes",
                maxBlockBytes,
                "be 1 to 1 GiB");
    }

    /// Defaults for everything but root and namespace.
    public static StoreConfig of(Path root, String namespace) {
        return new StoreConfig(
                root,
                namespace,
                true,
                FleetKey.NONE,
                new Space(
                        DEFAULT_QUOTA_BYTES,
                        DEFAULT_LOW_WATERMARK,
                        DEFAULT_HIGH_WATERMARK,
                        DEFAULT_RESERVE_BYTES),
                Durability.NONE,
                DirectIo.AUTO,
                new Pools(16, 4, 256),
                DEFAULT_MAX_BLOCK_BYTES,
                new Times(
                        Duration.ofSeconds(10),
                        Duration.ofSeconds(2),
                        Duration.ofMinutes(15),
                        Duration.ofSeconds(30),
                        Duration.ofMinutes(1)));
    }

    public StoreConfig withQuota(long bytes, double low, double high) {
        return with(new Space(bytes, low, high, space.reserveBytes));
    }

    public StoreConfig withReserveBytes(long bytes) {
        return with(new Space(space.quotaBytes, space.lowWatermark, space.highWatermark, bytes));
    }

    public StoreConfig with(Space other) {
        return new StoreConfig(
                root,
                namespace,
                checkFolder,
                key,
                other,
                durability,
                directIo,
                pools,
                maxBlockBytes,
                times);
    }

    public StoreConfig withCheckFolder(boolean check) {
        return new StoreConfig(
                root,
                namespace,
                check,
                key,
                space,
                durability,
                directIo,
                pools,
                maxBlockBytes,
                times);
    }

    public StoreConfig withKey(FleetKey other) {
        return new StoreConfig(
                root,
                namespace,
                checkFolder,
                other,
                space,
                durability,
                directIo,
                pools,
                maxBlockBytes,
                times);
    }

    public StoreConfig withMedium(Durability kept, DirectIo direct) {
        return new StoreConfig(
                root,
                namespace,
                checkFolder,
                key,
                space,
                kept,
                direct,
                pools,
                maxBlockBytes,
                times);
    }

    public StoreConfig with(Pools other) {
        return new StoreConfig(
                root,
                namespace,
                checkFolder,
                key,
                space,
                durability,
                directIo,
                other,
                maxBlockBytes,
                times);
    }

    public StoreConfig with(Times other) {
        return new StoreConfig(
                root,
                namespace,
                checkFolder,
                key,
                space,
                durability,
                directIo,
                pools,
                maxBlockBytes,
                other);
    }

    private static void require(boolean holds, String field, Object value, String rule) {
        if (!holds) {
            throw new IllegalArgumentException(field + " must " + rule + ", is " + value);
        }
    }
}
