// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.common;

import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.CurveKeys;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.stream.Stream;

/// The connector's options. Names are vLLM's where vLLM has one (extra config first, its
/// environment variables as aliases); Mooncake's 480 s hold and 30 s HTTP limit are kept as
/// defaults.
///
/// @param numWorkers transfers that one prefiller rank runs at a time, see `PushQueue`
/// @param maxLoads loads of one decoder rank from one prefiller that may be open
/// @param dataParallelRank under which a prefiller registers; empty for the engine's, negative for
///   one made of its id
/// @param bootstrapAddress external bootstrap service; empty for the embedded one
/// @param abortTimeout how long a prefiller holds blocks for, and waits for the prefill of, a
///   transfer
/// @param connectorTimeout limit of an HTTP call and of connecting a side channel
/// @param transferTimeout limit of one write
/// @param trustsLayouts whether peers that do not show how they lay out a block lay it out as ours
/// @param crossMemory whether the Java engine copies straight between processes of one host
/// @param crossMemoryPtracer whether it lets every process of this user do so with this one
/// @param curve keys of the side channel; empty leaves it in the clear, as vLLM's
/// @param secret of the fleet; with it every port is closed to those who do not know it
/// @param secretFile where it stands if an option says so
/// @param requireCapability whether a decoder refuses prefillers that know no write capabilities
/// @param bindHost address that the ports listen on; empty for `kv_ip`
/// @param minPort with maxPort: where ports are drawn from; 0 leaves the choice to the system
/// @param transferBackends of the host, which move the bytes in place of an engine of the
///   connector's own; empty for the latter
/// @param sharesConnections whether requests of a kvferry decoder to a kvferry prefiller share a
///   connection
/// @param rehearsal whether small caches are handed over within the process when it opens
/// @param trustAnswers whether the answers of prefillers without capabilities end a load although
///   not all of its bytes have arrived, and nothing shows that their WRITEs are acknowledged
public record MooncakeSettings(
        int numWorkers,
        int maxLoads,
        String protocol,
        String device,
        String engine,
        Optional<Path> library,
        Optional<String> bootstrapAddress,
        int bootstrapPort,
        OptionalInt dataParallelRank,
        Duration abortTimeout,
        Duration connectorTimeout,
        Duration transferTimeout,
        Generation generation,
        boolean trustsLayouts,
        boolean layoutReuse,
        boolean crossMemory,
        boolean crossMemoryPtracer,
        Optional<CurveKeys> curve,
        Optional<FleetSecret> secret,
        Optional<Path> secretFile,
        boolean requireCapability,
        Optional<String> bindHost,
        int minPort,
        int maxPort,
        List<Choice> transferBackends,
        boolean sharesConnections,
        boolean rehearsal,
        boolean trustAnswers) {
    private static final String REQUIRE_CAPABILITY = "require_capability";
    private static final String TRANSFER_BACKENDS = "transfer_backends";
    private static final String SIDE_CHANNEL = "side_channel";
    private static final String PUBLIC_KEY = "curve_public_key";
    private static final String SECRET_KEY = "curve_secret_key";
    private static final String SERVER_KEY = "curve_server_key";
    private static final String CLIENT_KEYS = "curve_client_keys";

    /// For messages, beyond what a prefiller does within its limits.
    private static final Duration ON_THE_WAY = Duration.ofSeconds(1);

    public static final OptionSchema SCHEMA =
            OptionSchema.of(
                    Option.of(
                                    "num_workers",
                                    Option.Type.INTEGER,
                                    "transfers that a prefiller rank runs at a time; up to twice as many while one decoder or host had"
                                            + " taken more than half of them before another came")
                            .withDefault("10")
                            .inRange(1, 1024),
                    Option.of(
                                    "max_loads",
                                    Option.Type.INTEGER,
                                    "loads of a decoder rank from one prefiller that may be open, twice as many from all; one more"
                                            + " is refused, and the engine computes"
                                            + " those tokens itself or fails the request")
                            .withDefault("4096")
                            .inRange(1, 1_000_000),
                    Option.choice(
                            "mooncake_protocol", "transport of the transfer engine", "tcp", "rdma"),
                    Option.of(
                                    "device_name",
                                    Option.Type.STRING,
                                    "RDMA devices, comma separated; native engine only")
                            .withDefault(""),
                    Option.choice(
                            "engine",
                            "transfer engine: pure Java, or Mooncake's own library",
                            "java",
                            "native"),
                    Option.of(
                            TRANSFER_BACKENDS,
                            Option.Type.JSON,
                            "transfer backends of the host by which decoders read, best first: names, or {\"name\": .., \"options\": {..}};"
                                    + " set on both sides. Without it the connector has a transfer engine of its own"),
                    Option.of(
                            "library",
                            Option.Type.PATH,
                            "libtransfer_engine.so for engine=native; KVFERRY_MOONCAKE_TE_LIB else"),
                    Option.of(
                            "bootstrap_server_address",
                            Option.Type.STRING,
                            "host:port of an external bootstrap service; without it rank 0 of a prefiller runs one"),
                    Option.of(
                                    "bootstrap_port",
                                    Option.Type.INTEGER,
                                    "port of the embedded bootstrap service, 0 for a free one")
                            .withDefault("8998")
                            .inRange(0, 65_535)
                            .withAliases("VLLM_MOONCAKE_BOOTSTRAP_PORT"),
                    Option.of(
                                    "data_parallel_rank",
                                    Option.Type.INTEGER,
                                    "dp_rank under which a prefiller registers, without it the engine's; -1 derives one from"
                                            + " engine_id, for several engines at one external bootstrap service")
                            .inRange(-1, 65_535),
                    Option.of(
                                    "abort_request_timeout",
                                    Option.Type.DURATION,
                                    "how long a prefiller holds blocks for a decoder; a decoder waits for an"
                                            + " answer as long, and transfer_timeout and 1 s more")
                            .withDefault("480s")
                            .inRange(0.1, 86_400)
                            .withAliases("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT"),
                    Option.of(
                                    "connector_timeout",
                                    Option.Type.DURATION,
                                    "limit of a bootstrap call and of connecting")
                            .withDefault("30s")
                            .inRange(0.1, 3_600)
                            .withAliases("VLLM_MOONCAKE_CONNECTOR_TIMEOUT"),
                    Option.of(
                                    "transfer_timeout",
                                    Option.Type.DURATION,
                                    "limit of one write into a decoder's memory")
                            .withDefault("60s")
                            .inRange(0.1, 3_600),
                    Option.choice(
                            "wire_generation",
                            "form of the requests a decoder sends; all are understood",
                            "G7",
                            "G6",
                            "G5",
                            "G4",
                            "G3B",
                            "G3",
                            "G2"),
                    Option.choice(
                            "peer_layout",
                            "peers that do not show that their blocks are laid out as ours (any but kvferry's and those"
                                    + " of vLLM 0.33): refused, or taken as told here to be laid out alike",
                            "checked",
                            "alike"),
                    Option.of(
                                    "layout_reuse",
                                    Option.Type.BOOLEAN,
                                    "send the memory layout once per prefiller (G7)")
                            .withDefault("true"),
                    Option.of(
                                    "cross_memory",
                                    Option.Type.BOOLEAN,
                                    "write straight into the memory of a decoder on this host: the cache lies in shared memory where there is room, else where the kernel permits; false: by socket; engine=java")
                            .withDefault("true"),
                    Option.of(
                                    "cross_memory_ptracer",
                                    Option.Type.BOOLEAN,
                                    "with ptrace_scope=1: let every process of this user read and write this one's memory")
                            .withDefault("false"),
                    Option.of(
                            "secret_file",
                            Option.Type.PATH,
                            "file with the fleet's secret, which closes every port to those who do not know it; KVFERRY_SECRET_FILE else"),
                    Option.of(
                            REQUIRE_CAPABILITY,
                            Option.Type.BOOLEAN,
                            "refuse prefillers that know no write capabilities (vLLM's); without it true where a secret or CURVE keys are set"),
                    Option.of(
                                    "trust_answers",
                                    Option.Type.BOOLEAN,
                                    "take the word of prefillers without write capabilities that a load is complete, also where not"
                                            + " every byte of its blocks has arrived and their WRITEs are not acknowledged"
                                            + " (Mooncake before 0.3.12): wrong bytes are possible. Without it such a load"
                                            + " waits for its bytes, for transfer_timeout, and fails without them")
                            .withDefault("false"),
                    Option.of(
                            "bind_host",
                            Option.Type.STRING,
                            "address that the ports listen on; kv_ip without it"),
                    Option.of(
                                    "min_port",
                                    Option.Type.INTEGER,
                                    "lowest port to draw for transfer engine and side channel; 0 leaves it to the system")
                            .withDefault("0")
                            .inRange(0, 65_535),
                    Option.of("max_port", Option.Type.INTEGER, "highest port to draw")
                            .withDefault("0")
                            .inRange(0, 65_535),
                    Option.choice(
                            SIDE_CHANNEL,
                            "connections of the side channel: one for all requests to a kvferry prefiller where both sides say auto, else (single, as with vLLM) one for each request",
                            "auto",
                            "single"),
                    Option.of(
                                    "rehearsal",
                                    Option.Type.BOOLEAN,
                                    "hand small caches over within the process while the connector opens, once in a JVM: the first request need not wait for classes to load; engine=java")
                            .withDefault("true"),
                    Option.of(
                            PUBLIC_KEY,
                            Option.Type.STRING,
                            "CURVE key of this engine (Z85); encrypts the side channel, which vLLM cannot"),
                    Option.of(SECRET_KEY, Option.Type.STRING, "the secret half of it").asSecret(),
                    Option.of(
                            SERVER_KEY,
                            Option.Type.STRING,
                            "public CURVE key of the prefillers; without it the engine's own, for fleets of one key"),
                    Option.of(
                            CLIENT_KEYS,
                            Option.Type.STRING_LIST,
                            "public CURVE keys of the decoders that a prefiller serves; without it the engine's own"));

    public static MooncakeSettings from(OptionValues options) {
        Optional<Path> secretFile =
                options.has("secret_file")
                        ? Optional.of(options.path("secret_file"))
                        : Optional.empty();
        var secret = secretFile.map(FleetSecret::read).or(FleetSecret::configured);
        var curve =
                curve(options)
                        .or(() ->
                                secret.map(known ->
                                        CurveKeys.shared(known.keyFor("mooncake side channel"))));
        int minPort = (int) options.integer("min_port");
        int maxPort = (int) options.integer("max_port");
        if (minPort > maxPort || (minPort == 0) != (maxPort == 0)) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "min_port " + minPort + " and max_port " + maxPort + " name no range");
        }
        return new MooncakeSettings(
                (int) options.integer("num_workers"),
                (int) options.integer("max_loads"),
                options.string("mooncake_protocol"),
                options.string("device_name"),
                options.string("engine"),
                options.has("library") ? Optional.of(options.path("library")) : Optional.empty(),
                options.optionalString("bootstrap_server_address"),
                (int) options.integer("bootstrap_port"),
                options.has("data_parallel_rank")
                        ? OptionalInt.of((int) options.integer("data_parallel_rank"))
                        : OptionalInt.empty(),
                options.duration("abort_request_timeout"),
                options.duration("connector_timeout"),
                options.duration("transfer_timeout"),
                Generation.valueOf(options.string("wire_generation")),
                options.string("peer_layout").equals("alike"),
                options.bool("layout_reuse"),
                options.bool("cross_memory"),
                options.bool("cross_memory_ptracer"),
                curve,
                secret,
                secretFile,
                options.has(REQUIRE_CAPABILITY)
                        ? options.bool(REQUIRE_CAPABILITY)
                        : curve.isPresent(),
                options.optionalString("bind_host"),
                minPort,
                maxPort,
                options.has(TRANSFER_BACKENDS)
                        ? transferBackends(options.json(TRANSFER_BACKENDS))
                        : List.of(),
                options.string(SIDE_CHANNEL).equals("auto"),
                options.bool("rehearsal"),
                options.bool("trust_answers"));
    }

    private static List<Choice> transferBackends(Object json) {
        if (!(json instanceof List<?> list) || list.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    TRANSFER_BACKENDS + " is a list of one or more backends, not " + json);
        }
        return list.stream().map(MooncakeSettings::choice).toList();
    }

    private static Choice choice(Object entry) {
        if (entry instanceof String name) {
            return new Choice(name, Map.of());
        }
        if (entry instanceof Map<?, ?> map
                && map.get("name") instanceof String name
                && (map.containsKey("options") ? map.get("options") : Map.of())
                        instanceof Map<?, ?> options
                && map.keySet().stream().allMatch(Set.of("name", "options")::contains)) {
            var named = new HashMap<String, Object>();
            options.forEach((key, value) -> named.put(String.valueOf(key), value));
            return new Choice(name, named);
        }
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                TRANSFER_BACKENDS
                        + ": an entry is a name, or {\"name\": .., \"options\": {..}}, not "
                        + entry);
    }

    private static Optional<CurveKeys> curve(OptionValues options) {
        boolean keys = options.has(PUBLIC_KEY) && options.has(SECRET_KEY);
        boolean any =
                Stream.of(PUBLIC_KEY, SECRET_KEY, SERVER_KEY, CLIENT_KEYS).anyMatch(options::has);
        if (any && !keys) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "CURVE needs both " + PUBLIC_KEY + " and " + SECRET_KEY + " of this engine");
        }
        if (!any) {
            return Optional.empty();
        }
        var own = options.string(PUBLIC_KEY);
        try {
            return Optional.of(
                    new CurveKeys(
                            own,
                            options.string(SECRET_KEY),
                            options.optionalString(SERVER_KEY).orElse(own),
                            options.has(CLIENT_KEYS)
                                    ? Set.copyOf(options.strings(CLIENT_KEYS))
                                    : Set.of(own)));
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, String.valueOf(e.getMessage()), e);
        }
    }

    /// The dp_rank to register an engine under.
    public int dataParallelRank(EngineInfo engine, String engineId) {
        int rank = dataParallelRank.orElse(engine.dataParallelRank());
        return rank >= 0 ? rank : 1 + (engineId.hashCode() & 0x7fff);
    }

    /// How requests to a prefiller travel.
    ///
    /// @param kvferry whether it is a kvferry prefiller; others do not support shared connections
    public Carriage carriage(boolean kvferry) {
        return sharesConnections && kvferry ? Carriage.SHARED : Carriage.ALONE;
    }

    /// How long a decoder waits for the next word of a prefiller: longer than the prefiller itself
    /// waits, as in vLLM.
    public Duration answerLimit() {
        return abortTimeout.plus(transferTimeout).plus(ON_THE_WAY);
    }
}
