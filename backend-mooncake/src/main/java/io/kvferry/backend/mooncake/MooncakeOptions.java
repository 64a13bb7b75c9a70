// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.nativeengine.NativeConfig;
import io.kvferry.backend.mooncake.nativeengine.NativeTransferEngine;
import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/// The options of the transfer engine, and the engine they describe.
final class MooncakeOptions {
    static final OptionSchema SCHEMA =
            OptionSchema.of(
                    Option.choice(
                            "protocol",
                            "what carries the bytes; rdma needs engine=native",
                            "tcp",
                            "rdma"),
                    Option.choice(
                            "engine",
                            "java: pure Java; native: Mooncake's library",
                            "java",
                            "native"),
                    Option.of(
                                    "metadata",
                                    Option.Type.STRING,
                                    "P2PHANDSHAKE, http://host:port/metadata or etcd://host:port")
                            .withDefault(EngineConfig.P2P),
                    Option.of(
                                    "name",
                                    Option.Type.STRING,
                                    "segment name with a metadata server, unique per start")
                            .withDefault(""),
                    Option.of("cluster_id", Option.Type.STRING, "key prefix with a metadata server")
                            .withDefault(""),
                    Option.of(
                                    "device",
                                    Option.Type.STRING,
                                    "RDMA devices, comma-separated; engine=native")
                            .withDefault(""),
                    Option.of(
                                    "library",
                                    Option.Type.STRING,
                                    "path of libtransfer_engine.so; engine=native")
                            .withDefault(""),
                    Option.of("host", Option.Type.STRING, "advertised to peers")
                            .withDefault("127.0.0.1"),
                    Option.of(
                                    "bind_host",
                                    Option.Type.STRING,
                                    "what the sockets listen on; host if empty")
                            .withDefault(""),
                    Option.of(
                                    "min_port",
                                    Option.Type.INTEGER,
                                    "lowest port to draw; 0 leaves it to the system")
                            .withDefault("0")
                            .inRange(0, 65_535),
                    Option.of("max_port", Option.Type.INTEGER, "highest port to draw")
                            .withDefault("0")
                            .inRange(0, 65_535),
                    Option.of("lanes", Option.Type.INTEGER, "data connections per peer")
                            .withDefault("4")
                            .inRange(1, 64),
                    Option.of(
                                    "spin_us",
                                    Option.Type.INTEGER,
                                    "microseconds for which a thread looks again and again for a reply, the next request or the rest of a range before it sleeps, while the connections in use have two processors each; 0 for never; engine=java")
                            .withDefault("100")
                            .inRange(0, 1000),
                    Option.of(
                                    "queue",
                                    Option.Type.INTEGER,
                                    "submitted transfers that wait, per peer")
                            .withDefault("1024")
                            .inRange(1, 1 << 20),
                    Option.of(
                                    "stall_timeout",
                                    Option.Type.DURATION,
                                    "longest wait without progress")
                            .withDefault("30s")
                            .inRange(0.001, 86_400),
                    Option.of(
                                    "open_memory",
                                    Option.Type.BOOLEAN,
                                    "let Mooncake processes, and whoever else reaches the data port, read and write all registered"
                                            + " memory, as Mooncake does; else only agents that have this one's metadata; engine=native"
                                            + " is always open")
                            .withDefault("false"),
                    Option.of(
                                    "checksum",
                                    Option.Type.BOOLEAN,
                                    "CRC32C between kvferry peers over TCP; within a host only with shared_memory=false")
                            .withDefault("true"),
                    Option.of(
                                    "shared_memory",
                                    Option.Type.BOOLEAN,
                                    "peers on this host map memory the engine allocated")
                            .withDefault("true"),
                    Option.of(
                                    "cross_memory",
                                    Option.Type.BOOLEAN,
                                    "copy straight between the memory of processes on this host where the kernel permits; needs shared_memory")
                            .withDefault("true"),
                    Option.of(
                                    "cross_memory_ptracer",
                                    Option.Type.BOOLEAN,
                                    "with ptrace_scope=1: let every process of this user read and write this one's memory")
                            .withDefault("false"));

    private MooncakeOptions() {}

    static boolean isNative(OptionValues options) {
        return options.string("engine").equals("native");
    }

    /// The access of peers to memory that is registered.
    static Access access(OptionValues options) {
        return isNative(options) || options.bool("open_memory") ? Access.OPEN : Access.KEYED;
    }

    static TransferEngine start(OptionValues options) {
        return isNative(options)
                ? NativeTransferEngine.start(nativeConfig(options))
                : JavaTransferEngine.start(javaConfig(options));
    }

    static EngineConfig javaConfig(OptionValues options) {
        if (!options.string("protocol").equals("tcp")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol="
                            + options.string("protocol")
                            + " needs engine=native; pure Java speaks tcp");
        }
        if (!options.string("device").isEmpty() || !options.string("library").isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "device and library need engine=native");
        }
        Map<String, String> settings = new HashMap<>();
        String host = options.string("host");
        settings.put("host", host);
        settings.put(
                "bind-host",
                options.string("bind_host").isEmpty() ? host : options.string("bind_host"));
        settings.put("min-port", String.valueOf(options.integer("min_port")));
        settings.put("max-port", String.valueOf(options.integer("max_port")));
        settings.put("metadata", options.string("metadata"));
        settings.put("name", options.string("name"));
        settings.put("cluster-id", options.string("cluster_id"));
        settings.put("lanes-per-peer", String.valueOf(options.integer("lanes")));
        settings.put("spin-us", String.valueOf(options.integer("spin_us")));
        settings.put("queue-per-peer", String.valueOf(options.integer("queue")));
        settings.put(
                "stall-timeout-ms",
                String.valueOf(Math.max(1, options.duration("stall_timeout").toMillis())));
        // The SPI's unregister must not block: peers that still use the memory are cut off.
        settings.put("drain-timeout-ms", "1");
        settings.put("checksum", checksum(options));
        settings.put("shared-memory", String.valueOf(options.bool("shared_memory")));
        settings.put("cross-memory", String.valueOf(options.bool("cross_memory")));
        settings.put("cross-memory-ptracer", String.valueOf(options.bool("cross_memory_ptracer")));
        return EngineConfig.from(settings);
    }

    private static NativeConfig nativeConfig(OptionValues options) {
        String text = options.string("library");
        Path library =
                text.isEmpty()
                        ? NativeConfig.libraryFromEnvironment()
                                .orElseThrow(() ->
                                        new KvFerryException(
                                                ErrorCode.UNAVAILABLE,
                                                "engine=native. "
                                                        + NativeTransferEngine.HOW_TO_GET))
                        : Path.of(text);
        String host = options.string("host");
        return new NativeConfig(
                library,
                options.string("metadata"),
                options.string("name").isEmpty() ? host : options.string("name"),
                host,
                options.string("protocol"),
                options.string("device"),
                Math.toIntExact(options.integer("queue")),
                Duration.ofSeconds(30));
    }

    /// Copies through shared memory carry no checksum. If they are allowed, the backend does not
    /// claim to verify bytes, and sockets within a host may skip the checksum as well.
    private static String checksum(OptionValues options) {
        return !options.bool("checksum")
                ? "false"
                : options.bool("shared_memory") ? "auto" : "true";
    }
}
