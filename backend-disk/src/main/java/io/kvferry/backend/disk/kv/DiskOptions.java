// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.files.PrivateFolder;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Optional;

/// The options of the disk connector, and what they mean for its stores.
public final class DiskOptions {
    private static final Logger LOG = LoggerFactory.getLogger(DiskOptions.class);

    /// Aim for the size of a file.
    static final long RUN_BYTES = 4 << 20;

    public static final String PATH = "shared_storage_path";

    private static final Path DEFAULT_FOLDER =
            defaultFolder(
                    Optional.ofNullable(System.getenv("XDG_CACHE_HOME")),
                    System.getProperty("user.home"));

    /// The schema.
    public static final OptionSchema SCHEMA =
            OptionSchema.of(
                    Option.of(
                                    PATH,
                                    Option.Type.PATH,
                                    "folder of the blocks; processes, models and tenants may share it")
                            .withDefault(DEFAULT_FOLDER.toString())
                            .withAliases("path"),
                    Option.of(
                                    "check_folder",
                                    Option.Type.BOOLEAN,
                                    "refuse a folder that another user owns, may write to or could replace")
                            .withDefault("true"),
                    Option.of(
                            "secret_file",
                            Option.Type.PATH,
                            "secret of the fleet, else that of "
                                    + FleetSecret.SETTING
                                    + ": blocks written without it are not loaded"),
                    Option.of(
                                    "run_blocks",
                                    Option.Type.INTEGER,
                                    "blocks of a prompt in one file; 0: as many as make 4 MiB, at most 64")
                            .withDefault("0")
                            .inRange(0, 1024),
                    Option.choice(
                            "load",
                            "load while the request waits, within the step, or never",
                            "async",
                            "sync",
                            "none"),
                    Option.choice(
                            "save",
                            "save in the background under a lease, or never",
                            "lease",
                            "none"),
                    Option.of(
                                    "capacity",
                                    Option.Type.BYTES,
                                    "most bytes in the folder of one namespace")
                            .withDefault(StoreConfig.DEFAULT_QUOTA_BYTES + "")
                            .inRange(1, 1e18),
                    Option.of(
                                    "high_watermark",
                                    Option.Type.NUMBER,
                                    "share of the capacity above which eviction starts")
                            .withDefault(StoreConfig.DEFAULT_HIGH_WATERMARK + "")
                            .inRange(0.01, 1),
                    Option.of(
                                    "low_watermark",
                                    Option.Type.NUMBER,
                                    "share of the capacity at which eviction stops; without it, high_watermark")
                            .inRange(0.01, 1),
                    Option.of(
                                    "reserve",
                                    Option.Type.BYTES,
                                    "free space of the file system that is never used")
                            .withDefault(StoreConfig.DEFAULT_RESERVE_BYTES + "")
                            .inRange(0, 1e18),
                    Option.choice(
                            "durability",
                            "what a completed save survives: none: the end of the process; data: a power cut may"
                                    + " lose the block, but never leaves a part of it; strict: also a power cut",
                            "none",
                            "data",
                            "strict"),
                    Option.choice(
                            "direct",
                            "bypass the page cache with O_DIRECT; auto: only for a store that both loads and"
                                    + " saves and is larger than half of the memory, and while no"
                                    + " other process has its folder open",
                            "auto",
                            "on",
                            "off"),
                    threads("read_threads", "threads that read", 16),
                    threads("write_threads", "threads that write, and help readers first", 4),
                    Option.of(
                                    "queue_depth",
                                    Option.Type.INTEGER,
                                    "blocks of each direction handed to the threads at a time")
                            .withDefault("256")
                            .inRange(1, 65_536),
                    Option.of(
                                    "max_loads",
                                    Option.Type.INTEGER,
                                    "loads of a rank that may be open; one more is refused, and the engine computes"
                                            + " those tokens itself or fails the request")
                            .withDefault("4096")
                            .inRange(1, 1_000_000),
                    limit("io_timeout", "longest time for one block", "10s"),
                    limit("lease", "longest time for all blocks of one load or save", "60s"),
                    duration(
                            "save_wait",
                            "how long a step waits for its saves, so that a decoder that is asked next"
                                    + " finds them; without it, 1s for a kv_producer, else 0s"),
                    duration(
                            "lookup_wait",
                            "how long a lookup waits for the file system before it answers 'ask again'",
                            "2ms"),
                    duration(
                            "verify_after",
                            "how long a lookup uses what an earlier one saw; 0 looks each time",
                            "0s"),
                    limit("scan_interval", "time between two comparisons with the folder", "30s"),
                    limit(
                            "recency",
                            "how often a block in use gets a new file time, by which other processes and"
                                    + " later ones evict",
                            "60s"),
                    duration(
                                    "suppression",
                                    "how long lookups miss a block after a read of its file failed;"
                                            + " twice as long after each further failure, up to an hour",
                                    "5s")
                            .inRange(0.001, 3600),
                    duration(
                            "temp_max_age",
                            "age at which the unfinished file of a dead writer is deleted",
                            "15m"),
                    Option.of(
                                    "rehearsal",
                                    Option.Type.BOOLEAN,
                                    "save and load small caches in a temporary folder while the connector opens,"
                                            + " once in a JVM: the first request need not wait for classes to load")
                            .withDefault("true"));

    private DiskOptions() {}

    /// In the user's own cache folder.
    ///
    /// @param cache XDG_CACHE_HOME, which is to be ignored where it is no absolute path
    static Path defaultFolder(Optional<String> cache, String home) {
        return cache.map(Path::of)
                .filter(Path::isAbsolute)
                .orElse(Path.of(home, ".cache"))
                .resolve("kvferry")
                .resolve("kv");
    }

    /// The folder of the blocks.
    private static Path folder(OptionValues options) {
        Path folder = options.path(PATH);
        if (options.bool("check_folder") && folder.equals(DEFAULT_FOLDER)) {
            requirePrivate(folder);
        }
        return folder;
    }

    /// Refuses a default folder below a world-writable one, where another user could create it
    /// first.
    static void requirePrivate(Path folder) {
        try {
            if (!PrivateFolder.isBelowPublicFolder(folder)) {
                return;
            }
        } catch (IOException e) {
            throw FileTrouble.exception("cannot look at the folders above " + folder, e);
        }
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "DiskConnector has no "
                        + PATH
                        + ", and its default "
                        + folder
                        + " is below a folder that everybody may write to; set "
                        + PATH
                        + ", or XDG_CACHE_HOME, to a folder of this user alone");
    }

    private static Option threads(String name, String description, int count) {
        return Option.of(name, Option.Type.INTEGER, description)
                .withDefault(count + "")
                .inRange(1, 64);
    }

    private static Option duration(String name, String description, String value) {
        return duration(name, description).withDefault(value);
    }

    private static Option duration(String name, String description) {
        return Option.of(name, Option.Type.DURATION, description).inRange(0, 86_400);
    }

    /// A duration in which something has to happen.
    private static Option limit(String name, String description, String value) {
        return duration(name, description, value).inRange(0.001, 86_400);
    }

    /// The store of a worker half.
    public static StoreConfig workerStore(
            OptionValues options, CacheNamespace namespace, KvRole role) {
        return base(options, namespace, role)
                .with(
                        new StoreConfig.Pools(
                                (int) options.integer("read_threads"),
                                (int) options.integer("write_threads"),
                                (int) options.integer("queue_depth")));
    }

    /// The store of a scheduler half, which looks and never reads or writes blocks.
    static StoreConfig schedulerStore(OptionValues options, CacheNamespace namespace, KvRole role) {
        return base(options, namespace, role).with(new StoreConfig.Pools(1, 1, 256));
    }

    private static StoreConfig base(OptionValues options, CacheNamespace namespace, KvRole role) {
        double high = options.number("high_watermark");
        double low = options.has("low_watermark") ? options.number("low_watermark") : high;
        requireOrder(low, high);
        Durability durability =
                Durability.valueOf(options.string("durability").toUpperCase(Locale.ROOT));
        return StoreConfig.of(folder(options), "kv\n" + namespace.hex() + "\n" + namespace)
                .withCheckFolder(options.bool("check_folder"))
                .withKey(key(options))
                .withQuota(options.bytes("capacity"), low, high)
                .withReserveBytes(options.bytes("reserve"))
                .withMedium(durability, direct(options, role))
                .with(
                        new StoreConfig.Times(
                                options.duration("io_timeout"),
                                options.duration("verify_after"),
                                options.duration("temp_max_age"),
                                options.duration("scan_interval"),
                                options.duration("recency"),
                                options.duration("suppression")));
    }

    private static void requireOrder(double low, double high) {
        if (low > high) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "kv_connector_extra_config of DiskConnector: low_watermark "
                            + low
                            + ", where eviction stops, is above high_watermark "
                            + high
                            + ", where it starts; lower the one or raise the other");
        }
    }

    private static DirectIo direct(OptionValues options, KvRole role) {
        var wanted = DirectIo.valueOf(options.string("direct").toUpperCase(Locale.ROOT));
        if (wanted != DirectIo.AUTO) {
            return wanted;
        }
        var chosen = AutoDirect.of(role, options.bytes("capacity"), memoryBytes());
        LOG.info("direct I/O 'auto': {}", chosen.text());
        return chosen.io();
    }

    /// What 'auto' chose, and why.
    ///
    /// @param io AUTO: direct where the file system takes it, while no other process has the folder
    ///   open
    record AutoDirect(DirectIo io, String text) {
        /// The page cache avoids disk reads when one process soon reads what another wrote, or when
        /// all blocks fit into memory. For a large store that a single engine fills and reads back,
        /// it would only evict other data from the cache.
        static AutoDirect of(KvRole role, long capacity, long memory) {
            boolean one = role.produces() && role.consumes();
            boolean large = capacity > memory / 2;
            return new AutoDirect(
                    one && large ? DirectIo.AUTO : DirectIo.OFF,
                    (one && large
                                    ? "direct where the file system takes it and while no other process"
                                            + " has the folder open"
                                    : "buffered")
                            + ", because "
                            + (one
                                    ? "the capacity is "
                                            + (large ? "more" : "no more")
                                            + " than half of the machine's "
                                            + memory
                                            + " bytes of memory"
                                    : "one process writes what another reads"));
        }
    }

    private static FleetKey key(OptionValues options) {
        var secret =
                options.has("secret_file")
                        ? Optional.of(FleetSecret.read(options.path("secret_file")))
                        : FleetSecret.configured();
        return secret.map(FleetKey::of).orElse(FleetKey.NONE);
    }

    private static long memoryBytes() {
        return ManagementFactory.getOperatingSystemMXBean()
                        instanceof com.sun.management.OperatingSystemMXBean system
                ? system.getTotalMemorySize()
                : Runtime.getRuntime().maxMemory();
    }

    /// How long a step waits for its saves. A prefill engine that responds before its blocks can be
    /// found makes the decode engine recompute them.
    static Duration saveWait(OptionValues options, KvRole role) {
        if (options.has("save_wait")) {
            return options.duration("save_wait");
        }
        return role == KvRole.PRODUCER ? Duration.ofSeconds(1) : Duration.ZERO;
    }

    static Duration lease(OptionValues options) {
        return options.duration("lease");
    }
}
