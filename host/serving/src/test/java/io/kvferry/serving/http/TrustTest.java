// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.route.HandOff;
import io.kvferry.serving.route.PdRouter;
import io.kvferry.serving.route.RouterSettings;
import io.kvferry.serving.route.RoutingPolicy;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Access rules: who may use a server, and who may tell it where to fetch KV from.
class TrustTest {
    private static final String WITH_PARAMS =
            "{\"prompt\": \"a\", \"kv_transfer_params\": {\"do_remote_prefill\": true, \"remote_host\": \"evil\"}}";
    private static final String RESET = "/reset_prefix_cache?reset_external=true";
    private static final InetSocketAddress ANY_PORT =
            new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);

    @TempDir Path folder;

    private final List<HttpService> services = new ArrayList<>();
    private final ScriptedEngine engine =
            new ScriptedEngine(
                    handle -> handle.say("ok").finish(FinishReason.LENGTH, TransferParams.EMPTY));

    @AfterEach
    void stop() {
        services.forEach(HttpService::close);
    }

    private HttpService serve(TransferTrust trust, String apiKey, Tls tls, boolean adminApart) {
        var settings =
                new HttpService.Settings(
                        ANY_PORT,
                        10_000,
                        8,
                        Duration.ofSeconds(1),
                        HttpLimits.defaults(),
                        apiKey,
                        tls.server());
        var service = new HttpService("test", settings);
        services.add(service);
        var admin = adminApart ? new HttpService("admin", settings.at(ANY_PORT)) : service;
        services.add(admin);
        OpenAiApi.install(engine.access(), service, Duration.ofSeconds(20), trust, admin);
        service.start();
        admin.start();
        return service;
    }

    private HttpService serve(TransferTrust trust) {
        return serve(trust, "", noTls(), false);
    }

    private static Tls noTls() {
        return new Tls(Optional.empty(), Optional.empty(), Optional.empty(), 0);
    }

    private FleetSecret secret(String text) throws IOException {
        var file = Files.createTempFile(folder, "secret", "");
        Files.writeString(file, text);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        return FleetSecret.read(file);
    }

    private static String signature(FleetSecret secret, String body) {
        return TransferTrust.sign(
                secret,
                "/v1/completions",
                body.getBytes(StandardCharsets.UTF_8),
                _ -> Optional.empty());
    }

    /// Ids in the form of vLLM's P2pNccl proxy say whom an engine pulls KV from.
    @Test
    void takesRequestIdsThatNameEnginesFromTheHolderOfTheSecretOnly() throws Exception {
        var secret = secret("0123456789abcdef");
        int port = serve(TransferTrust.of(Optional.of(secret), List.of())).port();
        var id = "___prefill_addr_10.0.0.66:1___decode_addr_x:1_" + "0".repeat(32);
        var body = "{\"prompt\": \"a\"}";
        var refused = TestClient.post(port, "/v1/completions", body, "X-Request-Id", id);
        assertThat(refused.statusCode()).isEqualTo(403);
        assertThat(engine.submitted).isEmpty();
        var bytes = body.getBytes(StandardCharsets.UTF_8);
        var signature =
                TransferTrust.sign(
                        secret,
                        "/v1/completions",
                        bytes,
                        name -> Optional.of(id).filter(_ -> name.equals("X-Request-Id")));
        assertThat(postWithId(port, body, id.replace("66", "67"), signature))
                .as("the signature is that of another id")
                .isEqualTo(403);
        assertThat(postWithId(port, body, id, signature(secret, body)))
                .as("the signature is that of a request without an id")
                .isEqualTo(403);
        assertThat(engine.submitted).isEmpty();
        assertThat(postWithId(port, body, id, signature)).isEqualTo(200);
        // A router is trusted, so what it passes on names nobody.
        var harmless = TransferTrust.withoutEngines(id);
        assertThat(
                        TestClient.post(port, "/v1/completions", body, "X-Request-Id", harmless)
                                .statusCode())
                .isEqualTo(200);
    }

    private static int postWithId(int port, String body, String id, String signature)
            throws Exception {
        return TestClient.post(
                        port,
                        "/v1/completions",
                        body,
                        "X-Request-Id",
                        id,
                        HttpSignature.HEADER,
                        signature)
                .statusCode();
    }

    @Test
    void takesTransferParamsFromTheHolderOfTheSecretOnly() throws Exception {
        var secret = secret("0123456789abcdef");
        int port = serve(TransferTrust.of(Optional.of(secret), List.of())).port();
        var refused = TestClient.post(port, "/v1/completions", WITH_PARAMS);
        assertThat(refused.statusCode()).isEqualTo(403);
        assertThat(refused.body()).contains("kv_transfer_params").contains(FleetSecret.SETTING);
        for (var wrong :
                List.of(
                        signature(secret("0123456789abcdeX"), WITH_PARAMS),
                        signature(secret, WITH_PARAMS + " "),
                        "forged")) {
            assertThat(
                            TestClient.post(
                                            port,
                                            "/v1/completions",
                                            WITH_PARAMS,
                                            HttpSignature.HEADER,
                                            wrong)
                                    .statusCode())
                    .isEqualTo(403);
        }
        assertThat(engine.submitted).isEmpty();
        assertThat(
                        TestClient.post(
                                        port,
                                        "/v1/completions",
                                        WITH_PARAMS,
                                        HttpSignature.HEADER,
                                        signature(secret, WITH_PARAMS))
                                .statusCode())
                .isEqualTo(200);
        assertThat(TestClient.post(port, "/v1/completions", "{\"prompt\": \"a\"}").statusCode())
                .isEqualTo(200);
    }

    @Test
    void takesTransferParamsFromListedPeersOnly() throws Exception {
        int closed = serve(TransferTrust.of(Optional.empty(), List.of("10.0.0.0/8"))).port();
        assertThat(TestClient.post(closed, "/v1/completions", WITH_PARAMS).statusCode())
                .isEqualTo(403);
        for (var peers : List.of(List.of("127.0.0.1"), List.of("::1", "127.1.0.0/7"))) {
            int open = serve(TransferTrust.of(Optional.empty(), peers)).port();
            assertThat(TestClient.post(open, "/v1/completions", WITH_PARAMS).statusCode())
                    .isEqualTo(200);
        }
        for (var wrong : List.of("example.org", "10.0.0.0/33", "10.0.0.0/x", "")) {
            assertThatThrownBy(() -> TransferTrust.of(Optional.empty(), List.of(wrong)))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("--trusted-peers");
        }
    }

    @Test
    void releasesHoldsForTrustedCallersOnly() throws Exception {
        var secret = secret("0123456789abcdef");
        int closed = serve(TransferTrust.of(Optional.of(secret), List.of())).port();
        assertThat(
                        TestClient.post(closed, "/kvferry/release_hold", "{\"hold\": \"t\"}")
                                .statusCode())
                .isEqualTo(403);
        int open = serve(TransferTrust.of(Optional.empty(), List.of())).port();
        TestClient.post(open, "/v1/completions", WITH_PARAMS, "X-Kvferry-Hold", "t-1");
        var handle = engine.submitted.remove();
        assertThat(TestClient.post(open, "/kvferry/release_hold", "{\"hold\": \"t-1\"}").body())
                .contains("true");
        assertThat(handle.released.get(40, TimeUnit.SECONDS)).isTrue();
        // A release that overtakes its request is remembered.
        assertThat(TestClient.post(open, "/kvferry/release_hold", "{\"hold\": \"t-2\"}").body())
                .contains("false");
        TestClient.post(open, "/v1/completions", WITH_PARAMS, "X-Kvferry-Hold", "t-2");
        assertThat(engine.submitted.remove().released.get(40, TimeUnit.SECONDS)).isTrue();
    }

    @Test
    void wantsTheApiKeyForTheModelButNotForHealth() throws Exception {
        var trust = TransferTrust.of(Optional.empty(), List.of());
        int port = serve(trust, "key-1", noTls(), false).port();
        assertThat(TestClient.get(port, "/v1/models").statusCode()).isEqualTo(401);
        assertThat(TestClient.post(port, "/v1/completions", "{\"prompt\": \"a\"}").statusCode())
                .isEqualTo(401);
        for (var wrong : List.of("Bearer key-2", "key-1", "Bearer key-1 ")) {
            var answer =
                    TestClient.post(
                            port,
                            "/v1/completions",
                            "{\"prompt\": \"a\"}",
                            "Authorization",
                            wrong.strip() + (wrong.endsWith(" ") ? "x" : ""));
            assertThat(answer.statusCode()).as(wrong).isEqualTo(401);
        }
        assertThat(
                        TestClient.post(
                                        port,
                                        "/v1/completions",
                                        "{\"prompt\": \"a\"}",
                                        "Authorization",
                                        "Bearer key-1")
                                .statusCode())
                .isEqualTo(200);
        assertThat(TestClient.get(port, "/health").statusCode()).isEqualTo(200);
        assertThat(TestClient.get(port, "/metrics").statusCode()).isEqualTo(200);
    }

    /// Without a key, a stranger could empty the caches and what the connectors keep.
    @Test
    void resetsCachesForHoldersOfTheKeyOrTrustedCallers() throws Exception {
        var nobody = TransferTrust.of(Optional.empty(), List.of("10.0.0.0/8"));
        int open = serve(nobody).port();
        assertThat(TestClient.post(open, RESET, "").statusCode()).isEqualTo(403);
        int keyed = serve(nobody, "key-1", noTls(), false).port();
        assertThat(TestClient.post(keyed, RESET, "").statusCode()).isEqualTo(401);
        serve(nobody, "key-1", noTls(), true);
        int admin = services.getLast().port();
        assertThat(TestClient.post(admin, RESET, "").statusCode()).isEqualTo(401);
        assertThat(engine.resets).isEmpty();
        for (int port : new int[] {keyed, admin}) {
            assertThat(
                            TestClient.post(port, RESET, "", "Authorization", "Bearer key-1")
                                    .statusCode())
                    .isEqualTo(200);
        }
        assertThat(engine.resets).containsExactly(true, true);
    }

    @Test
    void servesMetricsApart() throws Exception {
        var trust = TransferTrust.of(Optional.empty(), List.of());
        int port = serve(trust, "key-1", noTls(), true).port();
        int admin = services.getLast().port();
        assertThat(TestClient.get(port, "/metrics").statusCode()).isEqualTo(404);
        assertThat(TestClient.get(port, "/health").statusCode()).isEqualTo(200);
        assertThat(TestClient.get(admin, "/metrics").statusCode()).isEqualTo(200);
        assertThat(TestClient.get(admin, "/health").statusCode()).isEqualTo(200);
        assertThat(TestClient.get(admin, "/v1/models").statusCode()).isEqualTo(404);
    }

    @Test
    void servesTlsWithThePemFilesOfVllm() throws Exception {
        var made = TestCertificate.make(folder);
        var cert = made.certificate();
        var key = made.key();
        var tls = new Tls(Optional.of(cert), Optional.of(key), Optional.of(cert), 0);
        var trust = TransferTrust.of(Optional.empty(), List.of());
        var service = serve(trust, "", tls, false);
        var uri = URI.create("https://127.0.0.1:" + service.port() + "/v1/models");
        try (var client = HttpClient.newBuilder().sslContext(tls.client()).build()) {
            var request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(20)).build();
            assertThat(client.send(request, BodyHandlers.ofString()).body()).contains("test-model");
        }
        assertThat(throughRouter(URI.create("https://127.0.0.1:" + service.port()), tls))
                .contains("test-model");
        assertThatThrownBy(() -> TestClient.get(service.port(), "/health"))
                .isInstanceOf(IOException.class);
        assertThatThrownBy(() -> new Tls(Optional.of(cert), Optional.empty(), Optional.empty(), 0))
                .hasMessageContaining("go together");
        assertThatThrownBy(() ->
                        new Tls(Optional.of(key), Optional.of(key), Optional.empty(), 0).server())
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("--ssl-certfile");
    }

    /// The answer of a router whose instances have such certificates.
    private static String throughRouter(URI instance, Tls tls) throws Exception {
        var settings =
                new RouterSettings(
                        List.of(instance),
                        List.of(instance),
                        List.of(),
                        HandOff.CONTENT,
                        false,
                        RoutingPolicy.ROUND_ROBIN,
                        Map.of(),
                        Optional.empty(),
                        1,
                        Optional.of(tls.client()),
                        Duration.ofSeconds(20),
                        Duration.ofSeconds(20),
                        Duration.ofSeconds(20),
                        Duration.ofSeconds(20),
                        Duration.ofSeconds(1),
                        1 << 20);
        try (var router = new PdRouter(settings, TestClient.loopback())) {
            router.start();
            var answer =
                    TestClient.post(
                            router.port(),
                            "/v1/completions",
                            "{\"prompt\": \"a\", \"stream\": true}");
            assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
            assertThat(answer.body()).contains("[DONE]");
            return TestClient.get(router.port(), "/v1/models").body();
        }
    }
}
