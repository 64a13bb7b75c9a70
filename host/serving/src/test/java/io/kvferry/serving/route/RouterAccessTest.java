// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.http.HttpLimits;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.TestCertificate;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// Access to a router: its API key, its TLS, its port for metrics, and fields that instances take
/// from the router only.
class RouterAccessTest extends RouterRig {
    @TempDir Path folder;

    private static HttpResponse<String> post(HttpClient client, String url, String... headers)
            throws Exception {
        var request =
                HttpRequest.newBuilder(URI.create(url + "/v1/completions"))
                        .timeout(Duration.ofSeconds(60))
                        .POST(HttpRequest.BodyPublishers.ofString(REQUEST));
        if (headers.length > 0) {
            request.headers(headers);
        }
        return client.send(request.build(), BodyHandlers.ofString());
    }

    private static int get(HttpClient client, String url) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60));
        return client.send(request.build(), BodyHandlers.discarding()).statusCode();
    }

    @Test
    void wantsTheKeyOverTlsAndServesMetricsApart() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var tls = TestCertificate.make(folder).tls();
        var anyPort = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        var settings =
                RouterSettings.of(HandOff.CONTENT, List.of(p.uri()), List.of(d.uri()), List.of());
        var http =
                new HttpService.Settings(
                        anyPort,
                        10_000,
                        8,
                        Duration.ofSeconds(1),
                        HttpLimits.defaults(),
                        "key-1",
                        tls.server());
        try (var router = new PdRouter(settings, http, Optional.of(anyPort));
                var client = HttpClient.newBuilder().sslContext(tls.client()).build();
                var stranger = HttpClient.newHttpClient()) {
            router.start();
            assertThat(router.url()).startsWith("https://");
            assertThat(post(client, router.url()).statusCode()).isEqualTo(401);
            var wrong = post(client, router.url(), "Authorization", "Bearer key-2");
            assertThat(wrong.statusCode()).isEqualTo(401);
            assertThat(p.seen).isEmpty();
            assertThat(d.seen).isEmpty();
            var answer = post(client, router.url(), "Authorization", "Bearer key-1");
            assertThat(answer.body()).isEqualTo(D_ANSWER);
            assertThat(d.seen).hasSize(1);
            var plain = router.url().replace("https:", "http:");
            assertThatThrownBy(() -> post(stranger, plain)).isInstanceOf(IOException.class);
            assertThat(get(client, router.url() + "/metrics")).isEqualTo(404);
            assertThat(get(client, router.metricsUrl())).isEqualTo(200);
            assertThat(get(client, router.metricsUrl().replace("/metrics", "/v1/models")))
                    .isEqualTo(404);
        }
    }

    /// Instances trust what the router signs, or what comes from its address, so a client could
    /// send an engine to any host with them.
    @Test
    void takesNoTransferParamsFromClients() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.CONTENT, List.of(p.uri()), List.of(d.uri()));
        for (var field : List.of("kv_transfer_params", "ec_transfer_params")) {
            var body = "{\"prompt\": \"a\", \"" + field + "\": {\"remote_host\": \"evil\"}}";
            var answer = ask(router, body);
            assertThat(answer.statusCode()).as(field).isEqualTo(400);
            assertThat(TestClient.json(answer.body()).at("/error/param").asString())
                    .isEqualTo(field);
        }
        assertThat(p.seen).isEmpty();
        assertThat(d.seen).isEmpty();
    }
}
