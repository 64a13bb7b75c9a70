// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/// Everything that a [BlockStore] is told. Start from [#of] and change what differs.
///
/// @param root folder that may be shared by processes and namespaces; made if absent
/// @param namespace canonical text of everything that makes bytes comparable (model, dtype, layout
///   version, ...); stores of different text never see each other's blocks, and each has its own
///   quota
/// @param quotaBytes most bytes that the files of this namespace may take
/// @param highWatermark share of the quota above which eviction starts in the background
/// @param lowWatermark share of the quota at which that eviction stops
/// @param reserveBytes real free space of the file system that is never used
/// @param durability what a completed save survives
/// @param directIo whether to bypass the page cache
/// @param readThreads threads that only read
/// @param writeThreads threads that write, and, all but one, help readers first
/// @param queueDepth requests of each kind that may wait; one more is refused
/// @param ioTimeout longest wait for one request, whatever deadline its caller gave
/// @param maxBlockBytes largest block accepted; bounds the staging memory of each thread
/// @param verifyAfter age at which a remembered block is looked for on disk again, because another
///   process may have deleted it
/// @param tempMaxAge age at which an unfinished file of a dead writer is deleted
/// @param scanInterval time between two looks at the folder for what other processes did
public record StoreConfig(
        Path root,
        String namespace,
        long quotaBytes,
        double highWatermark,
        double lowWatermark,
        long reserveBytes,
        Durability durability,
        DirectIo directIo,
        int readThreads,
        int writeThreads,
        int queueDepth,
        Duration ioTimeout,
        long maxBlockBytes,
        Duration verifyAfter,
        Duration tempMaxAge,
        Duration scanInterval) {

    /// Watermarks and reserve are those of Mooncake's offset allocator store.
    public static final double DEFAULT_HIGH_WATERMARK = 0.90;

    public static final double DEFAULT_LOW_WATERMARK = 0.80;
    public static final long DEFAULT_RESERVE_BYTES = 256L << 20;
    public static final long DEFAULT_QUOTA_BYTES = 16L << 30;

    public StoreConfig {
        Objects.requireNonNull(root, "root");
        Objects.requireNonNull(namespace, "namespace");
        Objects.requireNonNull(durability, "durability");
        Objects.requireNonNull(directIo, "directIo");
        require(!namespace.isEmpty(), "namespace", namespace, "not be empty");
        require(quotaBytes > 0, "quotaBytes", quotaBytes, "be positive");
        require(
                0 < lowWatermark && lowWatermark <= highWatermark && highWatermark <= 1,
                "watermarks",
                lowWatermark + ", " + highWatermark,
                "be 0 < low <= high <= 1");
        require(reserveBytes >= 0, "reserveBytes", reserveBytes, "not be negative");
        require(readThreads >= 1 && readThreads <= 64, "readThreads", readThreads, "be 1 to 64");
        require(
                writeThreads >= 1 && writeThreads <= 64,
                "writeThreads",
                writeThreads,
                "be 1 to 64");
        require(
                queueDepth >= 1 && queueDepth <= 1 << 16,
                "queueDepth",
                queueDepth,
                "be 1 to 65536");
        require(
                maxBlockBytes >= 1 && maxBlockBytes <= 1L << 30,
                "maxBlockBytes",
                maxBlockBytes,
                "be 1 to 1 GiB");
        positive("ioTimeout", ioTimeout);
        positive("scanInterval", scanInterval);
        require(!verifyAfter.isNegative(), "verifyAfter", verifyAfter, "not be negative");
        require(!tempMaxAge.isNegative(), "tempMaxAge", tempMaxAge, "not be negative");
    }

    /// Defaults for everything but the place and the name.
    public static StoreConfig of(Path root, String namespace) {
        return new StoreConfig(
                root,
                namespace,
                DEFAULT_QUOTA_BYTES,
                DEFAULT_HIGH_WATERMARK,
                DEFAULT_LOW_WATERMARK,
                DEFAULT_RESERVE_BYTES,
                Durability.NONE,
                DirectIo.AUTO,
                4,
                4,
                256,
                Duration.ofSeconds(10),
                256L << 20,
                Duration.ofSeconds(2),
                Duration.ofMinutes(15),
                Duration.ofSeconds(30));
    }

    public StoreConfig withQuota(long bytes, double low, double high) {
        return new StoreConfig(
                root,
                namespace,
                bytes,
                high,
                low,
                reserveBytes,
                durability,
                directIo,
                readThreads,
                writeThreads,
                queueDepth,
                ioTimeout,
                maxBlockBytes,
                verifyAfter,
                tempMaxAge,
                scanInterval);
    }

    public StoreConfig withReserveBytes(long bytes) {
        return new StoreConfig(
                root,
                namespace,
                quotaBytes,
                highWatermark,
                lowWatermark,
                bytes,
                durability,
                directIo,
                readThreads,
                writeThreads,
                queueDepth,
                ioTimeout,
                maxBlockBytes,
                verifyAfter,
                tempMaxAge,
                scanInterval);
    }

    public StoreConfig withMedium(Durability kept, DirectIo direct) {
        return new StoreConfig(
                root,
                namespace,
                quotaBytes,
                highWatermark,
                lowWatermark,
                reserveBytes,
                kept,
                direct,
                readThreads,
                writeThreads,
                queueDepth,
                ioTimeout,
                maxBlockBytes,
                verifyAfter,
                tempMaxAge,
                scanInterval);
    }

    public StoreConfig withThreads(int readers, int writers, int depth) {
        return new StoreConfig(
                root,
                namespace,
                quotaBytes,
                highWatermark,
                lowWatermark,
                reserveBytes,
                durability,
                directIo,
                readers,
                writers,
                depth,
                ioTimeout,
                maxBlockBytes,
                verifyAfter,
                tempMaxAge,
                scanInterval);
    }

    public StoreConfig withMaxBlockBytes(long bytes) {
        return new StoreConfig(
                root,
                namespace,
                quotaBytes,
                highWatermark,
                lowWatermark,
                reserveBytes,
                durability,
                directIo,
                readThreads,
                writeThreads,
                queueDepth,
                ioTimeout,
                bytes,
                verifyAfter,
                tempMaxAge,
                scanInterval);
    }

    public StoreConfig withTimes(Duration io, Duration verify, Duration tempAge, Duration scan) {
        return new StoreConfig(
                root,
                namespace,
                quotaBytes,
                highWatermark,
                lowWatermark,
                reserveBytes,
                durability,
                directIo,
                readThreads,
                writeThreads,
                queueDepth,
                io,
                maxBlockBytes,
                verify,
                tempAge,
                scan);
    }

    private static void positive(String field, Duration value) {
        require(!value.isNegative() && !value.isZero(), field, value, "be positive");
    }

    private static void require(boolean holds, String field, Object value, String rule) {
        if (!holds) {
            throw new IllegalArgumentException(field + " must " + rule + ", is " + value);
        }
    }
}
