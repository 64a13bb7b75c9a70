// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.events.KvEventSubscriber;
import io.kvferry.serving.events.ZmqAddress;
import io.kvferry.serving.route.HandOff;
import io.kvferry.serving.route.PdRouter;
import io.kvferry.serving.route.RouterSettings;
import io.kvferry.serving.route.RoutingPolicy;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

import java.net.InetSocketAddress;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.stream.Stream;

/// `kvferry route`: the P/D router.
@Command(
        name = "route",
        mixinStandardHelpOptions = true,
        description =
                "Routes each request to a prefill and a decode instance, until it is stopped.")
final class RouteCommand implements Callable<Integer> {
    @Option(
            names = "--prefill",
            split = ",",
            paramLabel = "URL",
            description = "Prefill instances; with --nccl those that do not register.")
    List<URI> prefill = new ArrayList<>();

    @Option(
            names = "--decode",
            split = ",",
            paramLabel = "URL",
            description = "Decode instances; with --nccl those that do not register.")
    List<URI> decode = new ArrayList<>();

    @Option(
            names = "--bootstrap",
            split = ",",
            paramLabel = "URL",
            description =
                    "With --hand-off mooncake: the bootstrap server of each prefill instance, in their order.")
    List<URI> bootstrap = new ArrayList<>();

    @Option(
            names = "--kv-address",
            split = ",",
            paramLabel = "tcp://HOST:PORT",
            description =
                    "With --hand-off p2p: the kv_port of each prefill instance's rank 0, in their order.")
    List<URI> kvAddresses = new ArrayList<>();

    @Option(
            names = "--nccl",
            paramLabel = "HOST:PORT",
            description =
                    "Where P2pNcclConnectors register their instances (their proxy_ip and proxy_port); implies --hand-off p2p.")
    @Nullable String registration;

    @Option(
            names = "--hand-off",
            defaultValue = "PARAMS",
            description =
                    "How KV gets from P to D: ${COMPLETION-CANDIDATES} (default: ${DEFAULT-VALUE}).")
    HandOff handOff = HandOff.PARAMS;

    @Option(
            names = "--policy",
            defaultValue = "ROUND_ROBIN",
            description =
                    "Which working instance gets a request: ${COMPLETION-CANDIDATES} (default: ${DEFAULT-VALUE}).")
    RoutingPolicy policy = RoutingPolicy.ROUND_ROBIN;

    @Option(
            names = "--kv-events",
            split = ",",
            paramLabel = "URL=ENDPOINT",
            description =
                    "For --policy KV_EVENTS: where an instance publishes its KV events, http://10.0.0.7:8101=tcp://10.0.0.7:5557.")
    Map<URI, String> kvEvents = new HashMap<>();

    @Option(
            names = "--kv-events-replay",
            split = ",",
            paramLabel = "URL=ENDPOINT",
            description = "The replay endpoint of an instance, where it has one.")
    Map<URI, String> kvEventsReplay = new HashMap<>();

    @Option(
            names = "--kv-events-topic",
            defaultValue = "",
            description = "Beginning of the topic of the KV events (default: all).")
    String kvEventsTopic = "";

    @Option(
            names = "--max-attempts",
            defaultValue = "2",
            description =
                    "Most instances of a role that see one request (default: ${DEFAULT-VALUE}).")
    int maxAttempts = 2;

    @Option(
            names = "--no-recompute",
            description =
                    "Answer 502 when no prefill instance works, instead of letting the decode instance compute the prompt.")
    boolean noRecompute;

    @Option(
            names = "--connect-timeout",
            paramLabel = "SECONDS",
            defaultValue = "2",
            description = "For each connection (default: ${DEFAULT-VALUE}).")
    int connectSeconds = 2;

    @Option(
            names = "--request-timeout",
            paramLabel = "SECONDS",
            defaultValue = "600",
            description = "For a request as a whole (default: ${DEFAULT-VALUE}).")
    int requestSeconds = 600;

    @Option(
            names = "--first-byte-timeout",
            paramLabel = "SECONDS",
            defaultValue = "300",
            description =
                    "Longest wait for the first byte of a prefill response or of a stream (default: ${DEFAULT-VALUE}).")
    int firstByteSeconds = 300;

    @Option(
            names = "--idle-timeout",
            paramLabel = "SECONDS",
            defaultValue = "60",
            description = "Longest silence in a stream (default: ${DEFAULT-VALUE}).")
    int idleSeconds = 60;

    @Option(
            names = "--probe-interval",
            paramLabel = "SECONDS",
            defaultValue = "1",
            description =
                    "Between two looks at each instance's /health (default: ${DEFAULT-VALUE}).")
    int probeSeconds = 1;

    @Option(
            names = "--max-response-bytes",
            defaultValue = "67108864",
            description = "Longest response that is not a stream (default: ${DEFAULT-VALUE}).")
    int maxResponseBytes = 64 << 20;

    @Mixin final HttpOptions http = new HttpOptions();

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    private Map<URI, KvEventSubscriber.Source> eventSources() {
        for (var url : kvEventsReplay.keySet()) {
            if (!kvEvents.containsKey(url)) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "--kv-events-replay: " + url + " has no endpoint in --kv-events");
            }
        }
        var sources = new HashMap<URI, KvEventSubscriber.Source>();
        kvEvents.forEach((url, endpoint) ->
                sources.put(
                        url,
                        new KvEventSubscriber.Source(
                                ZmqAddress.of("--kv-events", endpoint),
                                Optional.ofNullable(kvEventsReplay.get(url))
                                        .map(at -> ZmqAddress.of("--kv-events-replay", at)),
                                kvEventsTopic)));
        return sources;
    }

    private static InetSocketAddress socketAddress(String text) {
        try {
            var uri = URI.create("tcp://" + text);
            if (uri.getHost() != null && uri.getPort() >= 0) {
                return HostNames.SYSTEM.socketAddress(uri.getHost(), uri.getPort());
            }
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "--nccl takes HOST:PORT, got " + text, e);
        }
        throw new KvFerryException(ErrorCode.BAD_CONFIG, "--nccl takes HOST:PORT, got " + text);
    }

    @Override
    public Integer call() {
        var secret = http.secret();
        var registering = Optional.ofNullable(registration).map(RouteCommand::socketAddress);
        if (registering.isPresent()) {
            handOff = HandOff.P2P;
        } else if (prefill.isEmpty() || decode.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "a router needs at least one --prefill and one --decode, or --nccl");
        }
        var settings =
                new RouterSettings(
                        prefill,
                        decode,
                        Stream.concat(bootstrap.stream(), kvAddresses.stream()).toList(),
                        handOff,
                        !noRecompute,
                        policy,
                        eventSources(),
                        secret,
                        maxAttempts,
                        Optional.of(http.tls().client()),
                        Duration.ofSeconds(connectSeconds),
                        Duration.ofSeconds(requestSeconds),
                        Duration.ofSeconds(firstByteSeconds),
                        Duration.ofSeconds(idleSeconds),
                        Duration.ofSeconds(probeSeconds),
                        maxResponseBytes);
        var httpSettings = http.settings();
        try (var daemon = new Daemon(http);
                var router = new PdRouter(settings, httpSettings, http.admin(), registering)) {
            router.start();
            var url = router.url();
            var how = handOff.name().toLowerCase(Locale.ROOT);
            var ready =
                    "routing "
                            + prefill.size()
                            + " prefill, "
                            + decode.size()
                            + " decode ("
                            + how
                            + ") on "
                            + url
                            + router.registrationAddress()
                                    .map(at -> ", registration at " + at)
                                    .orElse("");
            var facts = new HashMap<String, Object>(Map.of("url", url, "hand_off", how));
            router.registrationAddress().ifPresent(at -> facts.put("registration", at));
            http.admin().ifPresent(_ -> facts.put("metrics", router.metricsUrl()));
            daemon.announceAndWait(spec.commandLine().getOut(), ready, facts);
        }
        return ExitCode.OK;
    }
}
