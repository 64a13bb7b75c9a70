// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.serving.http.EngineAccess;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.OpenAiApi;
import io.kvferry.serving.http.SamplingDefaults;
import io.kvferry.serving.http.TestClient;
import io.kvferry.serving.http.TransferTrust;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.CacheEvent;

import tools.jackson.databind.JsonNode;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// The server of `kvferry serve` in the test's process: an engine behind the HTTP API on an
/// ephemeral port.
public final class ServedEngine implements AutoCloseable {
    private final AutoCloseable owner;
    private final HttpService http;

    /// Serves `/metrics`; may be the same service.
    private final HttpService admin;

    private boolean closed;

    public ServedEngine(EngineSettings settings) {
        this(settings, Optional.empty());
    }

    /// @param events where its cache events go
    public ServedEngine(EngineSettings settings, Optional<Consumer<CacheEvent>> events) {
        this(settings, events, false);
    }

    /// With `/metrics` at a port of its own.
    public static ServedEngine withAdminPort(EngineSettings settings) {
        return new ServedEngine(settings, Optional.empty(), true);
    }

    private ServedEngine(
            EngineSettings settings, Optional<Consumer<CacheEvent>> events, boolean adminPort) {
        this(AssembledEngine.open(settings), events, adminPort);
    }

    private ServedEngine(
            AssembledEngine assembled, Optional<Consumer<CacheEvent>> events, boolean adminPort) {
        this(assembled.engine(), assembled, events, adminPort);
    }

    /// An engine that the test has opened, and not started, itself.
    ///
    /// @param owner closes it
    ServedEngine(Engine engine, AutoCloseable owner) {
        this(engine, owner, Optional.empty(), false);
    }

    private ServedEngine(
            Engine engine,
            AutoCloseable owner,
            Optional<Consumer<CacheEvent>> events,
            boolean adminPort) {
        this.owner = owner;
        events.ifPresent(engine::onCacheEvent);
        http = new HttpService("test", TestClient.loopback());
        admin = adminPort ? new HttpService("admin", TestClient.loopback()) : http;
        OpenAiApi.install(
                EngineAccess.of(engine, engine.model().name(), SamplingDefaults.NONE),
                http,
                Duration.ofSeconds(60),
                TransferTrust.of(Optional.empty(), List.of()),
                admin);
        engine.start();
        admin.start();
        http.start();
    }

    public int adminPort() {
        return admin.port();
    }

    public int port() {
        return http.port();
    }

    /// The whole answer to a greedy completion of `tokens` tokens.
    public JsonNode complete(String prompt, int tokens) throws Exception {
        return complete(prompt, tokens, "");
    }

    /// The same for a tenant.
    public JsonNode complete(String prompt, int tokens, String salt) throws Exception {
        var body =
                Json.object()
                        .put("prompt", prompt)
                        .put("max_tokens", tokens)
                        .put("temperature", 0)
                        .put("ignore_eos", true)
                        .put("return_token_ids", true)
                        .put("cache_salt", salt);
        var response = TestClient.post(port(), "/v1/completions", Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        return TestClient.json(response.body());
    }

    /// The generated ids of a greedy completion.
    public List<Integer> tokens(String prompt, int tokens) throws Exception {
        var ids = new ArrayList<Integer>();
        complete(prompt, tokens).at("/choices/0/token_ids").forEach(id -> ids.add(id.asInt()));
        return ids;
    }

    /// A sample of `/metrics`, 0 where there is none.
    public double metric(String name, String labelPart) throws Exception {
        return MetricsPage.find(metrics(), name, labelPart).orElse(0.0);
    }

    public String metrics() throws Exception {
        return TestClient.get(adminPort(), "/metrics").body();
    }

    /// Waits until no connector holds a block any more: what was to be saved is saved. The figures
    /// of a step come after its answers, so while a request runs according to them, they are old.
    public void awaitSaved() throws Exception {
        var deadline = Deadline.in(Duration.ofSeconds(30));
        double leased = -1;
        while (!deadline.passed()) {
            double running = metric("vllm:num_requests_running", "");
            leased = metric("kvferry_blocks", "kind=\"leased\"");
            if (running == 0 && leased == 0 && metric("kvferry_requests", "state=\"held\"") == 0) {
                return;
            }
            TimeUnit.MILLISECONDS.sleep(10); // the figures are all there is; the deadline decides
        }
        assertThat(leased).as("blocks still leased").isZero();
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (admin != http) {
            admin.close();
        }
        http.close();
        try {
            owner.close();
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
