// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.events.KvEventSubscriber;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import java.net.URI;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import javax.net.ssl.SSLContext;

/// Settings of a router.
///
/// @param prefill base URLs of the prefill instances
/// @param decode base URLs of the decode instances
/// @param bootstrap where decode instances are to ask for each prefill instance, in the order of
///   `prefill`: for [HandOff#MOONCAKE] its bootstrap server, for [HandOff#P2P] its control port,
///   `tcp://host:port`
/// @param recomputeWithoutPrefill when no prefill instance works: true lets the decode instance
///   compute the prompt, false answers 502
/// @param policy which of the working instances gets a request
/// @param kvEvents where instances publish their KV events, by base URL
/// @param secret signs what the router sends, so that instances take `kv_transfer_params` from it
/// @param maxAttempts most instances of a role that see one request
/// @param tls how instances with https URLs are trusted; the JDK's way where it is absent
/// @param connectTimeout for each connection
/// @param requestTimeout for a request as a whole
/// @param firstByteTimeout longest wait for the first byte of a prefill response or of a stream
/// @param idleTimeout longest silence in the middle of a relayed stream
/// @param probeInterval between two looks at each instance's `/health`
/// @param maxResponseBytes longest response that is not a stream
public record RouterSettings(
        List<URI> prefill,
        List<URI> decode,
        List<URI> bootstrap,
        HandOff handOff,
        boolean recomputeWithoutPrefill,
        RoutingPolicy policy,
        Map<URI, KvEventSubscriber.Source> kvEvents,
        Optional<FleetSecret> secret,
        int maxAttempts,
        Optional<SSLContext> tls,
        Duration connectTimeout,
        Duration requestTimeout,
        Duration firstByteTimeout,
        Duration idleTimeout,
        Duration probeInterval,
        int maxResponseBytes) {
    public RouterSettings {
        prefill = List.copyOf(prefill);
        decode = List.copyOf(decode);
        bootstrap = List.copyOf(bootstrap);
        kvEvents = Map.copyOf(kvEvents);
        if (handOff != HandOff.P2P && (prefill.isEmpty() || decode.isEmpty())) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "a router needs at least one --prefill and one --decode");
        }
        requirePositive("--max-attempts", maxAttempts);
        requirePositive("--connect-timeout", connectTimeout.toNanos());
        requirePositive("--request-timeout", requestTimeout.toNanos());
        requirePositive("--first-byte-timeout", firstByteTimeout.toNanos());
        requirePositive("--idle-timeout", idleTimeout.toNanos());
        requirePositive("--probe-interval", probeInterval.toNanos());
        requirePositive("--max-response-bytes", maxResponseBytes);
        prefill.forEach(url -> requireHttp("--prefill", url));
        decode.forEach(url -> requireHttp("--decode", url));
        boolean p2p = handOff == HandOff.P2P;
        var where = p2p ? "--kv-address" : "--bootstrap";
        bootstrap.forEach(url -> {
            if (p2p) {
                requireTcp(where, url);
            } else {
                requireHttp(where, url);
            }
        });
        if ((p2p || handOff == HandOff.MOONCAKE) && bootstrap.size() != prefill.size()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "hand-off "
                            + (p2p ? "p2p" : "mooncake")
                            + " needs one "
                            + where
                            + " per --prefill, in the same order: got "
                            + bootstrap.size()
                            + " for "
                            + prefill.size());
        }
        for (var url : kvEvents.keySet()) {
            if (!prefill.contains(url) && !decode.contains(url)) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "--kv-events: " + url + " is neither a --prefill nor a --decode instance");
            }
        }
        var endpoints = new HashSet<String>();
        for (var source : kvEvents.values()) {
            if (!endpoints.add(source.events().text() + " " + source.topic())) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "--kv-events: two instances have the endpoint "
                                + source.events()
                                + "; each has its own");
            }
        }
        if ((policy == RoutingPolicy.KV_EVENTS) == kvEvents.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--policy KV_EVENTS and --kv-events URL=tcp://HOST:PORT need each other");
        }
        if (!p2p && handOff != HandOff.MOONCAKE && !bootstrap.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--bootstrap is for --hand-off mooncake only, --kv-address for p2p");
        }
    }

    private static void requirePositive(String option, long value) {
        if (value < 1) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, option + " must be at least 1");
        }
    }

    private static void requireTcp(String option, URI url) {
        if (!"tcp".equals(url.getScheme()) || url.getHost() == null || url.getPort() < 1) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    option + " takes tcp://HOST:PORT, the kv_port of rank 0, got " + url);
        }
    }

    private static void requireHttp(String option, URI url) {
        boolean http = "http".equals(url.getScheme()) || "https".equals(url.getScheme());
        if (!http || url.getHost() == null) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    option
                            + " takes URLs such as http://10.0.0.7:8000, got "
                            + url
                            + " (http or https, and a host)");
        }
    }

    /// Settings with the defaults of the command line.
    public static RouterSettings of(
            HandOff handOff, List<URI> prefill, List<URI> decode, List<URI> bootstrap) {
        return new RouterSettings(
                prefill,
                decode,
                bootstrap,
                handOff,
                true,
                RoutingPolicy.ROUND_ROBIN,
                Map.of(),
                Optional.empty(),
                2,
                Optional.empty(),
                Duration.ofSeconds(2),
                Duration.ofMinutes(10),
                Duration.ofMinutes(5),
                Duration.ofSeconds(60),
                Duration.ofSeconds(1),
                64 << 20);
    }

    /// The same with the policy [RoutingPolicy#KV_EVENTS].
    public RouterSettings withKvEvents(Map<URI, KvEventSubscriber.Source> sources) {
        return new RouterSettings(
                prefill,
                decode,
                bootstrap,
                handOff,
                recomputeWithoutPrefill,
                RoutingPolicy.KV_EVENTS,
                sources,
                secret,
                maxAttempts,
                tls,
                connectTimeout,
                requestTimeout,
                firstByteTimeout,
                idleTimeout,
                probeInterval,
                maxResponseBytes);
    }
}
