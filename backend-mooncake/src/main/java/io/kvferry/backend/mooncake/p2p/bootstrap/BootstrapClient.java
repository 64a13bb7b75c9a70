// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// Talks to a bootstrap service, kvferry's or vLLM's. One attempt per call; who calls decides on
/// repetition.
///
/// Threading: any thread; calls block up to the limit.
public final class BootstrapClient implements AutoCloseable {
    /// Far more than the workers of any fleet take; a longer answer is refused.
    private static final int MAX_ANSWER_BYTES = 1 << 20;

    private final Duration limit;
    private final Optional<FleetSecret> secret;
    private final LastingHttpClient http;

    /// @param limit for one call as a whole
    public BootstrapClient(Duration limit) {
        this(limit, Optional.empty());
    }

    /// @param limit for one call as a whole
    /// @param secret signs each call where there is one
    public BootstrapClient(Duration limit, Optional<FleetSecret> secret) {
        this.secret = secret;
        this.limit = limit;
        this.http = new LastingHttpClient(() -> open(limit));
    }

    private static HttpClient open(Duration limit) {
        return HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(limit)
                // Not the common pool, which others may hold up.
                .executor(HttpExchanges.threads("mooncake-bootstrap-http"))
                .followRedirects(HttpClient.Redirect.NEVER)
                .build();
    }

    /// The base address that `kv_transfer_params` or the configuration names: `http://host:port`,
    /// or `host:port`.
    ///
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST]
    public static URI baseAddress(String text) {
        var full = text.contains("://") ? text : "http://" + text;
        try {
            var uri = URI.create(full.endsWith("/") ? full.substring(0, full.length() - 1) : full);
            if (uri.getHost() != null
                    && uri.getPort() > 0
                    && uri.getPort() <= 65_535
                    && String.valueOf(uri.getScheme()).toLowerCase(Locale.ROOT).equals("http")) {
                return uri;
            }
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "not a bootstrap address: " + text + "; expected http://host:port",
                    e);
        }
        throw new KvFerryException(
                ErrorCode.INVALID_REQUEST,
                "not a bootstrap address: " + text + "; expected http://host:port");
    }

    /// Registers or renews a worker.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_REFUSED] with the service's reason,
    ///   [ErrorCode#PEER_LOST], [ErrorCode#TIMEOUT]
    public void register(URI base, WorkerRegistration registration) throws InterruptedException {
        var body = BootstrapJson.write(registration).getBytes(StandardCharsets.UTF_8);
        var request =
                signed(base, "POST", "/register", body)
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofByteArray(body))
                        .build();
        var response = send(request);
        if (response.statusCode() != 200) {
            throw refused(request, response);
        }
    }

    /// The registered engines by dp rank.
    ///
    /// @throws KvFerryException as [#register], or [ErrorCode#PROTOCOL]
    public Map<Integer, EngineEntry> query(URI base) throws InterruptedException {
        var request =
                signed(base, "GET", "/query", new byte[0])
                        .header(BootstrapServer.KVFERRY_HEADER, "1")
                        .GET()
                        .build();
        var response = send(request);
        if (response.statusCode() != 200) {
            throw refused(request, response);
        }
        return BootstrapJson.readEntries(response.body());
    }

    private HttpRequest.Builder signed(URI base, String method, String path, byte[] body) {
        var request = HttpRequest.newBuilder(base.resolve(path)).timeout(limit);
        secret.ifPresent(known ->
                request.header(
                        HttpSignature.HEADER, HttpSignature.sign(known, method, path, body)));
        return request;
    }

    @Override
    public void close() {
        http.close();
    }

    private HttpResponse<byte[]> send(HttpRequest request) throws InterruptedException {
        try {
            return HttpExchanges.send(
                    http.now(),
                    request,
                    HttpResponse.BodyHandlers.limiting(
                            HttpResponse.BodyHandlers.ofByteArray(), MAX_ANSWER_BYTES),
                    limit);
        } catch (HttpTimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    request.uri() + " did not answer within " + limit.toMillis() + " ms",
                    e);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.PEER_LOST, request.uri() + " is not reachable: " + e, e);
        }
    }

    private static KvFerryException refused(HttpRequest request, HttpResponse<byte[]> response) {
        var body =
                new String(
                        response.body(),
                        0,
                        Math.min(512, response.body().length),
                        StandardCharsets.UTF_8);
        return new KvFerryException(
                ErrorCode.PEER_REFUSED,
                request.uri() + " answered " + response.statusCode() + ": " + body);
    }
}
