// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.toolkit.disk.DirectIo;

import org.jspecify.annotations.Nullable;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// The options of a disk tier, with the environment variables of Mooncake's owner behind them.
public final class DiskOptions {
    /// The folder; without it there is no tier.
    public static final String PATH = "ssd_path";

    private static final String CHECK = "ssd_check_folder";
    private static final String SIZE = "ssd_size";
    private static final String EVICTION = "ssd_eviction";
    private static final String STAGING = "ssd_staging_size";
    private static final String BUCKET = "ssd_bucket_size";
    private static final String WHEN = "ssd_offload";
    private static final String PROMOTE = "ssd_promote_after";
    private static final String IO_LIMIT = "ssd_io_timeout";
    private static final String VARIABLE = "MOONCAKE_OFFLOAD_";

    private DiskOptions() {}

    /// The options, for the schema of who opens a store.
    public static List<Option> all() {
        return List.of(
                Option.of(
                        PATH,
                        Option.Type.PATH,
                        "folder of the disk tier, of this store alone; without it there is none"),
                Option.of(
                                CHECK,
                                Option.Type.BOOLEAN,
                                "refuse a folder that another user owns, may write to or could replace")
                        .withDefault("true"),
                Option.of(
                                SIZE,
                                Option.Type.BYTES,
                                "bytes on disk, 0 for 90 % of the file system;"
                                        + " MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE or"
                                        + " MOONCAKE_BUCKET_MAX_TOTAL_SIZE else, or 0")
                        .inRange(0, 1e17),
                Option.of(
                        EVICTION,
                        Option.Type.STRING,
                        "which bucket of objects is deleted for another one: lru, fifo or none;"
                                + " MOONCAKE_OFFLOAD_BUCKET_EVICTION_POLICY or"
                                + " MOONCAKE_BUCKET_EVICTION_POLICY else, or lru"),
                Option.of(
                                STAGING,
                                Option.Type.BYTES,
                                "memory through which blocks are read from disk;"
                                        + " MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES else, or 1280"
                                        + " MiB")
                        .inRange(4096, 1e15),
                Option.of(
                                BUCKET,
                                Option.Type.BYTES,
                                "largest file of objects;"
                                        + " MOONCAKE_OFFLOAD_BUCKET_SIZE_LIMIT_BYTES else, or 256"
                                        + " MiB")
                        .inRange(4096, 1e12),
                Option.choice(
                        WHEN,
                        "when a block is written to disk: after its put, or on_evict from memory",
                        "eager",
                        "on_evict"),
                Option.of(
                                PROMOTE,
                                Option.Type.INTEGER,
                                "reads from disk after which a block is kept in memory again, 0 for"
                                        + " never")
                        .withDefault("0")
                        .inRange(0, 1_000_000),
                Option.of(
                                IO_LIMIT,
                                Option.Type.DURATION,
                                "longest time for a read or write of the disk")
                        .withDefault("10s")
                        .inRange(0.01, 3600));
    }

    /// The tier that the options name.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for a variable that is no size or policy
    public static Optional<TierConfig> of(OptionValues options) {
        return of(options, System.getenv());
    }

    static Optional<TierConfig> of(OptionValues options, Map<String, String> environment) {
        if (!options.has(PATH)) {
            return Optional.empty();
        }
        Path path = options.path(PATH);
        long total =
                bytes(
                        options,
                        SIZE,
                        environment,
                        0,
                        VARIABLE + "BUCKET_MAX_TOTAL_SIZE",
                        "MOONCAKE_BUCKET_MAX_TOTAL_SIZE");
        var config = TierConfig.of(path, total);
        long bucket =
                bytes(
                        options,
                        BUCKET,
                        environment,
                        config.bucketBytes(),
                        VARIABLE + "BUCKET_SIZE_LIMIT_BYTES");
        long staging =
                bytes(
                        options,
                        STAGING,
                        environment,
                        TierConfig.STAGING_BYTES,
                        VARIABLE + "LOCAL_BUFFER_SIZE_BYTES");
        return Optional.of(
                config.withCheckFolder(options.bool(CHECK))
                        .withBuckets(bucket, config.bucketKeys(), eviction(options, environment))
                        .withStaging(staging)
                        .withMoves(
                                options.string(WHEN).equals("on_evict"),
                                Math.toIntExact(options.integer(PROMOTE)))
                        .withIo(
                                DirectIo.AUTO,
                                config.interval(),
                                options.duration(IO_LIMIT),
                                Duration.ofSeconds(10)));
    }

    private static BucketEviction eviction(OptionValues options, Map<String, String> environment) {
        @Nullable String word =
                options.has(EVICTION)
                        ? options.string(EVICTION)
                        : variable(
                                environment,
                                VARIABLE + "BUCKET_EVICTION_POLICY",
                                "MOONCAKE_BUCKET_EVICTION_POLICY");
        return switch (word == null ? "lru" : word.strip().toLowerCase(Locale.ROOT)) {
            case "lru" -> BucketEviction.LRU;
            case "fifo" -> BucketEviction.FIFO;
            case "none" -> BucketEviction.NONE;
            default -> throw bad(EVICTION + " is " + word + ", not lru, fifo or none");
        };
    }

    /// The option, else the first variable that is set, else the default.
    private static long bytes(
            OptionValues options,
            String option,
            Map<String, String> environment,
            long byDefault,
            String... names) {
        if (options.has(option)) {
            return options.bytes(option);
        }
        String text = variable(environment, names);
        if (text == null) {
            return byDefault;
        }
        try {
            return Long.parseLong(text.strip());
        } catch (NumberFormatException _) {
            throw bad(names[0] + " is " + text + ", not a number of bytes");
        }
    }

    private static @Nullable String variable(Map<String, String> environment, String... names) {
        for (String name : names) {
            String text = environment.get(name);
            if (text != null && !text.isBlank()) {
                return text;
            }
        }
        return null;
    }

    private static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, "disk tier: " + text);
    }
}
