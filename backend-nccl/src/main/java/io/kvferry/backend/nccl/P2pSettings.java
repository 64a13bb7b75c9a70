// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.vllm.TensorForm;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.toolkit.secret.FleetSecret;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Optional;

/// The options of a P2pNcclConnector.
///
/// @param checksum whether CRC32C goes with the bytes of the host data plane
/// @param ncclChannels of a communicator, 0 for NCCL's default
/// @param listenPort of rank 0, 0 for free ones; empty for `kv_port`
/// @param stagingBytes of the host's staging pool that pushes may occupy on a rank before their
///   request asks for them
/// @param maxLoads of a rank that may be open
/// @param pushLimit how long the end of a step waits for what it pushes, and with PUT its layers
///   before that
/// @param transferLimit of one transfer, from its grant to its last byte
/// @param receiveLimit how long a decoder waits for a prompt that is still being computed
/// @param holdLimit how long a prefiller keeps what nobody has fetched
/// @param stagedLimit how long a decoder keeps what nobody has asked for
/// @param proxy where rank 0 registers its engine, if it does
/// @param vllm whether it speaks protocol 0, that of vLLM's engines
/// @param tensorShape of the tensors of protocol 0
/// @param requestIdForm what vLLM's servers make of a request id, with `{id}` in its place and
///   `{prompt}` in that of the position of a prompt in its call
record P2pSettings(
        SendType sendType,
        PlaneChoice.Kind dataPlane,
        HostPlane.Checksum checksum,
        int ncclChannels,
        Optional<Integer> listenPort,
        Optional<String> bindHost,
        long stagingBytes,
        int maxLoads,
        Duration pushLimit,
        Duration transferLimit,
        Duration receiveLimit,
        Duration holdLimit,
        Duration stagedLimit,
        Optional<Proxy> proxy,
        Optional<FleetSecret> secret,
        boolean vllm,
        TensorForm.Shape tensorShape,
        String requestIdForm) {
    private static final String SEND_TYPE = "send_type";
    private static final String POOL = "mem_pool_size_gb";
    private static final String MAX_LOADS = "max_loads";
    private static final String PROTOCOL = "protocol";
    private static final String TENSOR_SHAPE = "vllm_tensor_shape";
    private static final String REQUEST_ID_FORM = "vllm_request_id";
    private static final String ID = "{id}";
    private static final String PROMPT = "{prompt}";

    private static final String DATA_PLANE = "data_plane";
    private static final String CHECKSUM = "checksum";
    private static final String CHANNELS = "nccl_num_channels";
    private static final int MOST_CHANNELS = 64;

    private static final String PROXY_IP = "proxy_ip";
    private static final String PROXY_PORT = "proxy_port";
    private static final String HTTP_PORT = "http_port";

    /// Where an engine registers itself.
    ///
    /// @param httpPort of the engine
    record Proxy(PeerAddress address, int httpPort) {}

    /// When a prefiller sends.
    enum SendType {
        /// As each layer is computed, and the model waits for it.
        PUT,
        /// While the model computes the next layers.
        PUT_ASYNC,
        /// When the decoder asks.
        GET
    }

    static final OptionSchema SCHEMA =
            OptionSchema.of(
                    Option.choice(
                            SEND_TYPE,
                            "when a prefiller sends: each layer while the next ones are computed, each before the next"
                                    + " one is computed, or when the decoder asks for it",
                            "PUT_ASYNC",
                            "PUT",
                            "GET"),
                    Option.of(
                                    POOL,
                                    Option.Type.NUMBER,
                                    "GiB of the host's staging pool that a rank fills with what is pushed before its"
                                            + " request asks for it; more is held by the prefiller")
                            .withDefault("32")
                            .inRange(0, 1 << 20),
                    Option.of(
                                    PROTOCOL,
                                    Option.Type.INTEGER,
                                    "1 is kvferry's; 0 is vLLM's, for peers that are P2pNcclEngines of vLLM: over NCCL"
                                            + " only, with neither secrets nor other peers")
                            .withDefault("1")
                            .inRange(0, 1),
                    Option.choice(
                            TENSOR_SHAPE,
                            "with protocol 0: the tensors of vLLM's attention backend, [2, blocks, tokens, heads, dim]"
                                    + " or [blocks, 2, tokens, heads, dim]",
                            "flash_attn",
                            "flashinfer"),
                    Option.of(
                                    REQUEST_ID_FORM,
                                    Option.Type.STRING,
                                    "with protocol 0: what vLLM's server makes of a request id that comes without a"
                                            + " prefix, of each prompt of a call; chatcmpl-{id} for chat completions")
                            .withDefault("cmpl-" + ID + "-" + PROMPT),
                    Option.of(
                                    MAX_LOADS,
                                    Option.Type.INTEGER,
                                    "loads of a decoder rank that may be open; one more is refused, and the engine computes"
                                            + " those tokens itself or fails the request")
                            .withDefault("4096")
                            .inRange(1, 1_000_000),
                    Option.of(
                                    "listen_port",
                                    Option.Type.INTEGER,
                                    "port of rank 0, rank k listens on the k-th after it; 0 draws free ones; kv_port"
                                            + " without it")
                            .inRange(0, 65_535),
                    Option.of(
                            "bind_host",
                            Option.Type.STRING,
                            "address that the ports listen on; kv_ip without it"),
                    Option.of(
                                    "push_timeout",
                                    Option.Type.DURATION,
                                    "how long the end of a step waits for what it pushes, and with PUT its layers before; what is late is held for the"
                                            + " decoder to fetch; with protocol 0 it is given up, and nothing is put to"
                                            + " that peer for as long")
                            .withDefault("5s")
                            .inRange(0.01, 3_600),
                    Option.of(
                                    "transfer_timeout",
                                    Option.Type.DURATION,
                                    "limit of one transfer, from its grant to its last byte")
                            .withDefault("60s")
                            .inRange(0.1, 3_600),
                    Option.of(
                                    "receive_timeout",
                                    Option.Type.DURATION,
                                    "how long a decoder waits for a prompt that is still being computed")
                            .withDefault("120s")
                            .inRange(0.1, 86_400),
                    Option.of(
                                    "hold_timeout",
                                    Option.Type.DURATION,
                                    "how long a prefiller keeps blocks that nobody has fetched")
                            .withDefault("120s")
                            .inRange(0.1, 86_400),
                    Option.of(
                                    "staged_timeout",
                                    Option.Type.DURATION,
                                    "how long a decoder keeps pushed blocks that no request has asked for")
                            .withDefault("120s")
                            .inRange(0.1, 86_400),
                    Option.of(
                            PROXY_IP,
                            Option.Type.STRING,
                            "with proxy_port: where rank 0 registers the engine, every 3 s: kvferry route --nccl, or vLLM's proxy"),
                    Option.of(PROXY_PORT, Option.Type.JSON, "its port, as a number or a string"),
                    Option.of(
                            HTTP_PORT,
                            Option.Type.JSON,
                            "port of this engine's HTTP API, which is registered; with a proxy only"),
                    Option.choice(
                            DATA_PLANE,
                            "what moves KV: NCCL where GPU and libraries are there, else as host; copies by the kernel"
                                    + " between processes of one host and user, else TCP; TCP; NCCL or nothing",
                            "auto",
                            "host",
                            "tcp",
                            "nccl"),
                    Option.of(
                                    CHECKSUM,
                                    Option.Type.JSON,
                                    "CRC32C between kvferry peers but over NCCL, where either end wants it: true, false, or"
                                            + " auto, which is between hosts")
                            .withDefault("auto"),
                    Option.of(
                            CHANNELS,
                            Option.Type.JSON,
                            "NCCL channels of each pair of ranks, 1 to 64, as a number or a string; NCCL's own choice"
                                    + " without it"),
                    Option.of(
                            "secret_file",
                            Option.Type.PATH,
                            "file with the fleet's secret, which closes every port to those who do not know it;"
                                    + " KVFERRY_SECRET_FILE else"));

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG]
    static P2pSettings from(OptionValues options) {
        if (!options.string(REQUEST_ID_FORM).contains(ID)) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, REQUEST_ID_FORM + " has no " + ID);
        }
        var rest = options.string(REQUEST_ID_FORM).replace(ID, "").replace(PROMPT, "");
        if (rest.contains("{") || rest.contains("}")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    REQUEST_ID_FORM + " knows " + ID + " and " + PROMPT + " only");
        }
        Optional<Path> file =
                options.has("secret_file")
                        ? Optional.of(options.path("secret_file"))
                        : Optional.empty();
        return new P2pSettings(
                SendType.valueOf(options.string(SEND_TYPE)),
                PlaneChoice.Kind.valueOf(options.string(DATA_PLANE).toUpperCase(Locale.ROOT)),
                checksum(String.valueOf(options.json(CHECKSUM))),
                channels(options),
                options.has("listen_port")
                        ? Optional.of((int) options.integer("listen_port"))
                        : Optional.empty(),
                options.optionalString("bind_host"),
                (long) (options.number(POOL) * (1L << 30)),
                (int) options.integer(MAX_LOADS),
                options.duration("push_timeout"),
                options.duration("transfer_timeout"),
                options.duration("receive_timeout"),
                options.duration("hold_timeout"),
                options.duration("staged_timeout"),
                proxy(options),
                file.map(FleetSecret::read).or(FleetSecret::configured),
                options.integer(PROTOCOL) == 0,
                TensorForm.Shape.valueOf(options.string(TENSOR_SHAPE).toUpperCase(Locale.ROOT)),
                options.string(REQUEST_ID_FORM));
    }

    private static HostPlane.Checksum checksum(String value) {
        return switch (value) {
            case "auto" -> HostPlane.Checksum.AUTO;
            case "true" -> HostPlane.Checksum.ALWAYS;
            case "false" -> HostPlane.Checksum.NEVER;
            case String other ->
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            CHECKSUM + " = '" + other + "' is none of auto, true, false");
        };
    }

    private static int channels(OptionValues options) {
        var value = options.has(CHANNELS) ? String.valueOf(options.json(CHANNELS)) : "";
        try {
            int channels = value.isEmpty() ? 0 : Integer.parseInt(value);
            if (value.isEmpty() || channels >= 1 && channels <= MOST_CHANNELS) {
                return channels;
            }
        } catch (NumberFormatException e) {
            // said below
        }
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                CHANNELS + " is a number from 1 to " + MOST_CHANNELS + ", not " + value);
    }

    /// As vLLM: without either part there is none.
    private static Optional<Proxy> proxy(OptionValues options) {
        var host = options.optionalString(PROXY_IP).orElse("");
        int port = port(options, PROXY_PORT);
        if (host.isEmpty() || port == 0) {
            return Optional.empty();
        }
        int http = port(options, HTTP_PORT);
        if (http == 0) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "a proxy is to be told this engine's http_port");
        }
        return Optional.of(new Proxy(new PeerAddress(host, port), http));
    }

    /// A port that is a number or, as in vLLM's recipes, a string; 0 where it is absent or empty.
    private static int port(OptionValues options, String name) {
        var value = options.has(name) ? String.valueOf(options.json(name)) : "";
        if (value.isEmpty()) {
            return 0;
        }
        return PeerAddress.parse("any:" + value)
                .orElseThrow(() ->
                        new KvFerryException(
                                ErrorCode.BAD_CONFIG, name + " is a port, not " + value))
                .port();
    }

    /// What a vLLM server makes of a request id that a router gave.
    ///
    /// @param promptIndex position of the prompt among those of the call
    String vllmRequestId(String id, int promptIndex) {
        return id.startsWith("___prefill_addr_")
                ? requestIdForm.replace(PROMPT, String.valueOf(promptIndex)).replace(ID, id)
                : id;
    }

    /// Whether the configuration says protocol 0, before anything is opened.
    static boolean isVllm(ConnectorConfig config) {
        return SCHEMA.read(config.connector(), config.extra()).integer(PROTOCOL) == 0;
    }

    /// What the configuration says, before anything is opened.
    static SendType sendType(ConnectorConfig config) {
        return SendType.valueOf(SCHEMA.read(config.connector(), config.extra()).string(SEND_TYPE));
    }

    /// Where that rank listens; 0 for any free port.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when the last rank has no port
    int port(ConnectorConfig config, int rank, int worldSize) {
        int base = listenPort.orElse(config.port());
        if (base == 0) {
            return 0;
        }
        if (new PeerAddress("any", base).rank(worldSize - 1).isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "port "
                            + base
                            + " leaves no port for rank "
                            + (worldSize - 1)
                            + ": rank k listens on the k-th port after it");
        }
        return base + rank;
    }
}
