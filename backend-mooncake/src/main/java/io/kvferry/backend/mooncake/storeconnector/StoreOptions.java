// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.ClusterConfig;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.DiskOptions;
import io.kvferry.backend.mooncake.storeconnector.keys.KeyForm;
import io.kvferry.backend.mooncake.storeconnector.keys.VllmHashes;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// The options of the connector: vLLM's where it has them, and those of the embedded store.
final class StoreOptions {
    static final String SEGMENT_SIZE = "global_segment_size";
    static final String STORE = "store";
    static final String TENANT = "tenant_id";
    static final String METADATA_SERVER = "metadata_server";
    static final String PROTOCOL = "mooncake_protocol";
    static final String DEVICE = "device_name";
    static final String CLUSTER_SEGMENT = "cluster_segment_size";
    static final String LIBRARY = "library";

    /// The schema.
    static final OptionSchema SCHEMA =
            withDisk(
                    text(
                            STORE,
                            "embedded (the default), in this JVM; host:port of an owner process"
                                    + " (kvferry owner); master://host:port of a directory of owners"
                                    + " (kvferry master); mooncake://host:port of the master of a"
                                    + " Mooncake cluster, or mooncake for the one that is named by"
                                    + " MOONCAKE_MASTER or the file MOONCAKE_CONFIG_PATH, which count"
                                    + " without this option too"),
                    Option.of(
                            LIBRARY,
                            Option.Type.PATH,
                            "Mooncake's libmooncake_store.so, for a Mooncake cluster; "
                                    + ClusterConfig.LIBRARY_VARIABLE
                                    + " else"),
                    text(
                            METADATA_SERVER,
                            "of a Mooncake cluster: P2PHANDSHAKE (the default) or an URL"),
                    text(
                            PROTOCOL,
                            "of a Mooncake cluster: tcp (the default; rdma in the file"
                                    + " MOONCAKE_CONFIG_PATH) or what else its library knows"),
                    text(DEVICE, "devices of that protocol, separated by commas; any else"),
                    Option.of(
                                    CLUSTER_SEGMENT,
                                    Option.Type.BYTES,
                                    "memory that this process adds to a Mooncake cluster; none, or"
                                            + " what the file MOONCAKE_CONFIG_PATH says")
                            .inRange(0, 1e15),
                    text(
                            "local_hostname",
                            "address by which an owner on another host reaches this one;"
                                    + " MOONCAKE_REQUESTER_LOCAL_HOSTNAME else"),
                    Option.of(
                            "secret_file",
                            Option.Type.PATH,
                            "file with the fleet's secret, for an owner process; "
                                    + FleetSecret.SETTING
                                    + " else"),
                    bool("insecure", "use an owner on another host without a secret", false),
                    duration("rpc_timeout", "longest time for one question to an owner", "5s"),
                    text("store_name", "the store of this JVM; engines that name the same share it")
                            .withDefault("kvferry"),
                    Option.of(
                                    SEGMENT_SIZE,
                                    Option.Type.BYTES,
                                    "memory of the store; the engine that opens it first decides")
                            .withDefault((1L << 30) + "")
                            .inRange(4096, 1e15),
                    text(
                                    "segment_name",
                                    "name of the segment with that memory, for preferred_segment")
                            .withDefault("embedded"),
                    text("preferred_segment", "segment that blocks are stored in if it has room"),
                    text(
                            TENANT,
                            "whose blocks they are; tenants do not see each other's; that of the"
                                    + " file MOONCAKE_CONFIG_PATH else, or "
                                    + StoreIdentity.DEFAULT_TENANT),
                    text("cache_prefix", "put in front of every key").withDefault(""),
                    Option.choice(
                            KeyForm.OPTION,
                            "how blocks are named: kvferry, with a fingerprint of model, element"
                                    + " type, layout and ranks; vllm, as vLLM 0.33.0 does, to share"
                                    + " a Mooncake cluster with its engines",
                            "kvferry",
                            "vllm"),
                    Option.choice(
                            KeyForm.ALGORITHM,
                            "of the block hashes of key_form vllm, as vLLM's option of that name; "
                                    + KeyForm.SEED
                                    + " seeds them there and here",
                            VllmHashes.Algorithm.SHA256.label(),
                            VllmHashes.Algorithm.SHA256_CBOR.label()),
                    duration(
                            "lookup_timeout",
                            "longest time that a request waits for the answer of a lookup; then"
                                    + " it is computed",
                            "5s"),
                    bool("load_async", "load while the request waits; there is no other way", true),
                    bool("enable_lookup", "whether blocks are looked for and loaded", true),
                    bool("lookup_leases", "keep blocks that a lookup found for kv_lease_ttl", true),
                    bool("save_decode_cache", "save the blocks of answers too", false),
                    bool("enable_group_semantics", "evict all parts of a block together", false),
                    bool(
                            "enable_cross_layers_blocks",
                            "of no effect: a block is one object here anyhow",
                            false),
                    bool(
                            "discard_partial_chunks",
                            "of no effect: only full blocks are saved",
                            true),
                    bool(
                            "checksum",
                            "keep a CRC32C of each block and check it on every load",
                            true),
                    Option.of(
                                    "eviction_high_watermark",
                                    Option.Type.NUMBER,
                                    "share of the store above which blocks are evicted")
                            .withDefault(StoreConfig.DEFAULT.highWatermark() + "")
                            .inRange(0.01, 1),
                    Option.of(
                                    "eviction_ratio",
                                    Option.Type.NUMBER,
                                    "share of the blocks that one eviction takes at least")
                            .withDefault(StoreConfig.DEFAULT.evictionRatio() + "")
                            .inRange(0, 1),
                    duration(
                            "kv_lease_ttl",
                            "how long a block that was found is not evicted",
                            "10s"),
                    duration("lease", "longest time for all blocks of one load or save", "60s"),
                    duration("linger", "how long the store outlives its last engine", "5m"),
                    Option.of(
                                    "load_recv_threads",
                                    Option.Type.INTEGER,
                                    "threads of a rank that load")
                            .withDefault("1")
                            .inRange(1, 64),
                    Option.of(
                                    "max_loads",
                                    Option.Type.INTEGER,
                                    "loads of a rank that may be open; one more is refused, and the"
                                            + " engine computes those tokens itself or fails the"
                                            + " request")
                            .withDefault("4096")
                            .inRange(1, 1_000_000));

    private StoreOptions() {}

    /// A disk tier is that of the embedded store; an owner has its own.
    private static OptionSchema withDisk(Option... options) {
        var all = new ArrayList<>(List.of(options));
        all.addAll(DiskOptions.all());
        return OptionSchema.of(all.toArray(Option[]::new));
    }

    private static Option text(String name, String description) {
        return Option.of(name, Option.Type.STRING, description);
    }

    private static Option bool(String name, String description, boolean value) {
        return Option.of(name, Option.Type.BOOLEAN, description).withDefault(value + "");
    }

    private static Option duration(String name, String description, String value) {
        return Option.of(name, Option.Type.DURATION, description)
                .withDefault(value)
                .inRange(0.001, 86_400);
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for values that do not go together
    static void check(OptionValues options) {
        if (!options.bool("load_async")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "load_async of MooncakeStoreConnector is false: it loads only while requests"
                            + " wait; leave the option out");
        }
        preferredSegment(options);
    }

    static boolean loads(KvRole role, OptionValues options) {
        return role.consumes() && options.bool("enable_lookup");
    }

    static boolean saves(KvRole role, OptionValues options) {
        return role.produces() || options.bool("save_decode_cache");
    }

    /// What stands in the options, else in the environment, else none. A blank option is an error
    /// and does not fall back; a blank variable is none.
    static PutOptions preferredSegment(OptionValues options) {
        return preferredSegment(options, System.getenv("MOONCAKE_PREFERRED_SEGMENT"));
    }

    static PutOptions preferredSegment(OptionValues options, @Nullable String environment) {
        if (options.has("preferred_segment")) {
            String name = options.string("preferred_segment").strip();
            if (name.isEmpty()) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "Mooncake preferred_segment override must be a non-empty string");
            }
            return PutOptions.DEFAULT.preferring(name);
        }
        return environment == null || environment.isBlank()
                ? PutOptions.DEFAULT
                : PutOptions.DEFAULT.preferring(environment.strip());
    }

    static Duration lease(OptionValues options) {
        return options.duration("lease");
    }

    static StoreConfig store(OptionValues options) {
        return StoreConfig.DEFAULT
                .withLeases(options.duration("kv_lease_ttl"), true)
                .withEviction(
                        options.number("eviction_high_watermark"),
                        options.number("eviction_ratio"),
                        true)
                .withChecksums(options.bool("checksum"));
    }
}
