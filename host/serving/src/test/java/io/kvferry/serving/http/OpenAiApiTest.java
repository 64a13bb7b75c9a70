// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.Usage;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

class OpenAiApiTest {
    private static final TransferParams P_SAYS =
            new TransferParams(Map.of("do_remote_prefill", true, "remote_port", 5L));

    private @Nullable HttpService http;
    private TransferTrust trust = TransferTrust.of(Optional.empty(), List.of());
    private ScriptedEngine engine = new ScriptedEngine(_ -> {});

    private int serve(Consumer<ScriptedEngine.Handle> script) {
        return serve(script, 64);
    }

    private int serve(Consumer<ScriptedEngine.Handle> script, int concurrent) {
        engine = new ScriptedEngine(script);
        var service = new HttpService("test", TestClient.loopback(concurrent));
        http = service;
        OpenAiApi.install(engine.access(), service, Duration.ofSeconds(20), trust, service);
        service.start();
        return service.port();
    }

    private static Consumer<ScriptedEngine.Handle> says(String text) {
        return handle -> handle.say(text).finish(FinishReason.LENGTH, P_SAYS);
    }

    @AfterEach
    void stop() {
        if (http != null) {
            http.close();
        }
    }

    @Test
    void resetsThePrefixCache() throws Exception {
        int port = serve(says("hello"));
        assertThat(TestClient.post(port, "/reset_prefix_cache", "").statusCode()).isEqualTo(200);
        assertThat(
                        TestClient.post(port, "/reset_prefix_cache?reset_external=true", "")
                                .statusCode())
                .isEqualTo(200);
        assertThat(engine.resets).containsExactly(false, true);
    }

    @Test
    void passesThePriorityOn() throws Exception {
        int port = serve(says("hello"));
        var answer =
                TestClient.post(port, "/v1/completions", "{\"prompt\": \"abc\", \"priority\": -3}");
        assertThat(answer.statusCode()).isEqualTo(200);
        assertThat(engine.submitted.remove().request.priority()).isEqualTo(-3);
    }

    @Test
    void answersACompletion() throws Exception {
        int port = serve(says("hello"));
        var response =
                TestClient.post(
                        port,
                        "/v1/completions",
                        """
                        {"model": "test-model", "prompt": "abcdef", "max_tokens": 5, "temperature": 0, "return_token_ids": true,
                         "cache_salt": "tenant", "kv_transfer_params": {"do_remote_decode": true, "remote_port": null}}\
                        """,
                        "X-Request-Id",
                        "abc-1");
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(response.headers().firstValue("X-Request-Id")).contains("abc-1");
        var json = TestClient.json(response.body());
        assertThat(json.at("/id").asString()).isEqualTo("cmpl-abc-1");
        assertThat(json.at("/object").asString()).isEqualTo("text_completion");
        assertThat(json.at("/choices/0/text").asString()).isEqualTo("hello");
        assertThat(json.at("/choices/0/finish_reason").asString()).isEqualTo("length");
        assertThat(json.at("/choices/0/token_ids/0").asInt()).isEqualTo('h');
        assertThat(json.at("/usage/prompt_tokens").asInt()).isEqualTo(6);
        assertThat(json.at("/usage/prompt_tokens_details/cached_tokens").asInt()).isEqualTo(20);
        assertThat(json.at("/usage/prompt_tokens_details/external_tokens/disk").asInt())
                .isEqualTo(16);
        assertThat(json.at("/kv_transfer_params/remote_port").asInt()).isEqualTo(5);
        var request = engine.submitted.remove().request;
        assertThat(request.kvParams().flag("do_remote_decode")).isTrue();
        assertThat(request.kvParams().values()).doesNotContainKey("remote_port");
        assertThat(request.cacheSalt()).isEqualTo("tenant");
        assertThat(request.externalId()).isEqualTo("abc-1");
        assertThat(request.sampling().isGreedy()).isTrue();
    }

    /// Connectors that go by the id of a call tell its prompts apart by their position.
    @Test
    void thePromptsOfACallHaveItsIdAndTheirPositions() throws Exception {
        int port = serve(says("a"));
        var response =
                TestClient.post(
                        port,
                        "/v1/completions",
                        "{\"prompt\": [\"one\", \"two\"], \"n\": 2, \"max_tokens\": 1}",
                        "X-Request-Id",
                        "abc-1");
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(engine.submitted)
                .extracting(handle -> handle.request.externalId())
                .containsOnly("abc-1");
        assertThat(engine.submitted)
                .extracting(handle -> handle.request.promptIndex())
                .containsExactly(0, 0, 1, 1);
    }

    @Test
    void answersAChat() throws Exception {
        int port = serve(says("yes"));
        var body =
                """
                {"messages": [{"role": "system", "content": "be brief"},
                              {"role": "user", "content": [{"type": "text", "text": "really?"}]}]}\
                """;
        var json = TestClient.json(TestClient.post(port, "/v1/chat/completions", body).body());
        assertThat(json.at("/object").asString()).isEqualTo("chat.completion");
        assertThat(json.at("/choices/0/message/content").asString()).isEqualTo("yes");
        var request = engine.submitted.remove().request;
        assertThat(new ByteTokenizer().decode(request.prompt()))
                .isEqualTo("system: be brief\nuser: really?");
        assertThat(request.sampling().maxTokens()).isEqualTo(512 - request.prompt().length);
    }

    @Test
    void streamsTokensAndEndsWithUsageAndDone() throws Exception {
        int port = serve(says("h\u00e9"));
        var response =
                TestClient.post(
                        port,
                        "/v1/completions",
                        "{\"prompt\": [1, 2, 3], \"stream\": true, \"stream_options\": {\"include_usage\": true}}");
        assertThat(response.headers().firstValue("Content-Type"))
                .hasValueSatisfying(type -> assertThat(type).startsWith("text/event-stream"));
        var events = TestClient.events(response.body());
        assertThat(events.getLast()).isEqualTo("[DONE]");
        var text = new StringBuilder();
        events.subList(0, events.size() - 2)
                .forEach(event ->
                        text.append(TestClient.json(event).at("/choices/0/text").asString()));
        assertThat(text).hasToString("h\u00e9");
        assertThat(
                        TestClient.json(events.get(events.size() - 3))
                                .at("/kv_transfer_params/remote_port")
                                .asInt())
                .isEqualTo(5);
        assertThat(
                        TestClient.json(events.get(events.size() - 2))
                                .at("/usage/completion_tokens")
                                .asInt())
                .isEqualTo(3);
    }

    @Test
    void leavesTheStopStringOut() throws Exception {
        int port =
                serve(handle ->
                        handle.say("one END").finish(FinishReason.STOP, TransferParams.EMPTY));
        var whole =
                TestClient.post(port, "/v1/completions", "{\"prompt\": \"x\", \"stop\": \" END\"}");
        assertThat(TestClient.json(whole.body()).at("/choices/0/text").asString()).isEqualTo("one");
        assertThat(TestClient.json(whole.body()).at("/kv_transfer_params").isNull()).isTrue();
        var stream =
                TestClient.post(
                        port,
                        "/v1/completions",
                        "{\"prompt\": \"x\", \"stop\": [\" END\"], \"stream\": true}");
        assertThat(stream.body()).contains("\"o\"").doesNotContain("\" \"", "\"E\"", "END");
    }

    @Test
    void refusesWhatItCannotDo() throws Exception {
        int port = serve(says("x"));
        assertRefused(port, "{\"prompt\": \"a\", \"n\": 0}", 400, "n");
        assertRefused(port, "{\"prompt\": \"a\", \"n\": 257}", 400, "n");
        assertRefused(port, "{\"prompt\": \"a\", \"stop\": 5}", 400, "stop");
        assertRefused(port, "{\"prompt\": \"a\", \"logprobs\": true}", 400, "logprobs");
        assertRefused(port, "{\"prompt\": \"a\", \"best_of\": 2}", 400, "best_of");
        assertRefused(port, "{\"prompt\": \"a\", \"messages\": []}", 400, "messages");
        assertRefused(port, "{\"prompt\": \"a\", \"min_tokens\": 99}", 400, "min_tokens");
        assertRefused(port, "{\"prompt\": \"a\", \"no_such_field\": 1}", 400, "no_such_field");
        assertRefused(port, "{\"prompt\": [[1], [256]]}", 400, "prompt[1]");
        var many = "{\"prompt\": [" + "[1], ".repeat(256) + "[256]]}";
        assertRefused(port, many, 400, "n"); // before a prompt is looked at
        for (var format : new String[] {"json_object", "json_schema"}) {
            assertRefused(
                    port,
                    "{\"prompt\": \"a\", \"response_format\": {\"type\": \"" + format + "\"}}",
                    400,
                    "response_format");
        }
        assertRefused(port, "{\"prompt\": \"a\", \"tools\": [{}]}", 400, "tools");
        assertRefused(port, "{\"prompt\": \"\"}", 400, "prompt");
        assertRefused(port, "{\"prompt\": \"a\", \"max_tokens\": 0}", 400, "max_tokens");
        assertRefused(port, "{\"prompt\": \"a\", \"temperature\": \"hot\"}", 400, "temperature");
        assertRefused(port, "{\"prompt\": \"a\", \"stream\": 1}", 400, "stream");
        assertRefused(
                port, "{\"prompt\": \"a\", \"kv_transfer_params\": []}", 400, "kv_transfer_params");
        assertRefused(port, "{\"prompt\": \"a\", \"model\": \"gpt\"}", 404, "");
        assertRefused(port, "{\"prompt\": \"a\"", 400, "");
        assertRefused(port, "[]", 400, "");
        assertRefused(port, "{\"prompt\": \"" + "a".repeat(600) + "\"}", 400, "prompt");
        assertRefused(port, "{\"prompt\": \"" + "a".repeat(20_000) + "\"}", 413, "");
        assertThat(engine.submitted).isEmpty();
        assertThat(TestClient.post(port, "/v1/nothing", "{}").statusCode()).isEqualTo(404);
        assertThat(TestClient.get(port, "/v1/completions").statusCode()).isEqualTo(405);
    }

    private static void assertRefused(int port, String body, int status, String param)
            throws Exception {
        var response = TestClient.post(port, "/v1/completions", body);
        assertThat(response.statusCode()).as(body).isEqualTo(status);
        var error = TestClient.json(response.body()).path("error");
        assertThat(error.path("message").asString()).isNotEmpty();
        assertThat(error.path("type").asString()).isEqualTo("invalid_request_error");
        assertThat(error.path("param").isNull() ? "" : error.path("param").asString())
                .isEqualTo(param);
    }

    @Test
    void tellsFailuresOfTheEngineByStatus() throws Exception {
        int port =
                serve(handle ->
                        handle.end(
                                new Outcome.Failed(
                                        new Failure(ErrorCode.CORRUPT, "block 7"), Usage.NONE)));
        for (var stream : new boolean[] {false, true}) {
            var response =
                    TestClient.post(
                            port,
                            "/v1/completions",
                            "{\"prompt\": \"a\", \"stream\": " + stream + "}");
            assertThat(response.statusCode()).isEqualTo(502);
            assertThat(TestClient.json(response.body()).at("/error/code").asString())
                    .isEqualTo("corrupt");
        }
    }

    @Test
    void endsABrokenStreamWithAnErrorEvent() throws Exception {
        int port =
                serve(handle -> {
                    handle.say("ab");
                    handle.end(
                            new Outcome.Failed(
                                    new Failure(ErrorCode.INTERNAL, "runner died"), Usage.NONE));
                });
        var events =
                TestClient.events(
                        TestClient.post(
                                        port,
                                        "/v1/completions",
                                        "{\"prompt\": \"a\", \"stream\": true}")
                                .body());
        assertThat(events).hasSize(4);
        assertThat(TestClient.json(events.get(2)).at("/error/message").asString())
                .contains("runner died");
        assertThat(events.get(3)).isEqualTo("[DONE]");
    }

    @Test
    void endsStreamsWithAnErrorEventWhenItStops() throws Exception {
        assertThat(streamOfAStoppedService(true)).contains("\"stopping\"", "data: [DONE]");
    }

    @Test
    void answersAStreamThatHasNotBegunWith503WhenItStops() throws Exception {
        assertThat(streamOfAStoppedService(false))
                .startsWith("HTTP/1.1 503")
                .contains("\"stopping\"");
    }

    /// What a client gets whose stream runs when the service stops. Its handler has two seconds for
    /// last words then; where the machine did not give it as much, the next service is stopped.
    ///
    /// @param begun whether the client has had the beginning
    private String streamOfAStoppedService(boolean begun) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (true) {
            engine = new ScriptedEngine(handle -> handle.say(begun ? "a" : ""));
            var bind = TestClient.loopback().bind();
            var settings = new HttpService.Settings(bind, 10_000, 64, Duration.ofMillis(1));
            var service = new HttpService("test", settings);
            http = service;
            OpenAiApi.install(engine.access(), service, Duration.ofSeconds(20), trust, service);
            service.start();
            var request = "{\"prompt\": \"a\", \"stream\": true}";
            try (var socket = TestClient.open(service.port(), "/v1/completions", request)) {
                var first = new byte[begun ? 1 : 0];
                assertThat(socket.getInputStream().readNBytes(first, 0, first.length))
                        .isEqualTo(first.length);
                engine.submitted.take();
                long begin = System.nanoTime();
                service.close();
                boolean late = System.nanoTime() - begin >= TimeUnit.SECONDS.toNanos(2);
                var all =
                        new String(first, StandardCharsets.UTF_8)
                                + new String(
                                        socket.getInputStream().readAllBytes(),
                                        StandardCharsets.UTF_8);
                if (!late || all.contains("\"stopping\"") || limit.passed()) {
                    return all;
                }
            }
        }
    }

    @Test
    void keepsASilentStreamAliveWithComments() throws Exception {
        var prompt = GenerationRequest.of(new int[] {97}, SamplingParams.greedy(4));
        var handle = new ScriptedEngine.Handle(prompt);
        var tokenizer = new ByteTokenizer();
        var request =
                new CompletionRequest(
                        false,
                        List.of(prompt),
                        1,
                        true,
                        false,
                        false,
                        false,
                        false,
                        false,
                        false,
                        -1);
        var json = new CompletionJson(request, tokenizer, "id", "test-model");
        var service = new HttpService("test", TestClient.loopback());
        http = service;
        service.route(
                "POST",
                "/v1/completions",
                call ->
                        new CompletionRun(
                                        call,
                                        request,
                                        List.of(handle),
                                        tokenizer,
                                        json,
                                        Deadline.in(Duration.ofSeconds(60)),
                                        Duration.ofMillis(20),
                                        (_, _) -> {})
                                .run());
        service.start();
        try (var socket = TestClient.open(service.port(), "/v1/completions", "{}")) {
            var in = socket.getInputStream();
            var text = new StringBuilder();
            while (text.indexOf(":\n\n") < 0) {
                int next = in.read();
                assertThat(next).as("%s", text).isNotNegative();
                text.append((char) next);
            }
            handle.say("a").finish(FinishReason.LENGTH, TransferParams.EMPTY);
            while (text.indexOf("[DONE]") < 0) {
                int next = in.read();
                assertThat(next).as("%s", text).isNotNegative();
                text.append((char) next);
            }
            assertThat(text).contains("HTTP/1.1 200", "\"text\":\"a\"");
        }
    }

    @Test
    void abortsAStreamWhenItsClientDisconnects() throws Exception {
        int port = serve(handle -> handle.say("a"));
        var socket =
                TestClient.open(port, "/v1/completions", "{\"prompt\": \"a\", \"stream\": true}");
        assertThat(socket.getInputStream().read()).isEqualTo('H');
        socket.close();
        var handle = engine.submitted.take();
        assertThat(handle.aborted.get(40, TimeUnit.SECONDS)).isTrue();
    }

    @Test
    void abortsAWaitingRequestWhenItsClientDisconnects() throws Exception {
        int port = serve(_ -> {});
        var socket = TestClient.open(port, "/v1/completions", "{\"prompt\": \"a\"}");
        var handle = engine.submitted.take();
        socket.close();
        assertThat(handle.aborted.get(40, TimeUnit.SECONDS)).isTrue();
    }

    @Test
    void refusesMoreThanItsSlotsAndAnswersHealthAllTheSame() throws Exception {
        int port = serve(_ -> {}, 1);
        try (var _ = TestClient.open(port, "/v1/completions", "{\"prompt\": \"a\"}")) {
            engine.submitted.take();
            var response = TestClient.post(port, "/v1/completions", "{\"prompt\": \"a\"}");
            assertThat(response.statusCode()).isEqualTo(503);
            assertThat(response.headers().firstValue("Retry-After")).contains("1");
            assertThat(TestClient.get(port, "/health").statusCode()).isEqualTo(200);
        }
    }

    /// Such as while a connector is off, which is opened again soon: no reason to route around.
    @Test
    void saysWhatItHasToDoWithoutAndServesOn() throws Exception {
        int port = serve(says("x"));
        for (var missing : List.of("", "DiskConnector: OutOfMemoryError", "")) {
            engine.degraded = missing;
            boolean degraded = !missing.isEmpty();
            var health = TestClient.get(port, "/health");
            assertThat(health.statusCode()).isEqualTo(200);
            var json = TestClient.json(health.body());
            assertThat(json.path("status").asString()).isEqualTo(degraded ? "degraded" : "ok");
            assertThat(json.path("reason").asString("")).isEqualTo(missing);
            var metrics = TestClient.get(port, "/metrics").body();
            assertThat(MetricsPage.find(metrics, "kvferry_degraded", ""))
                    .contains(degraded ? 1.0 : 0.0);
            assertThat(MetricsPage.find(metrics, "kvferry_healthy", "")).contains(1.0);
            assertThat(TestClient.post(port, "/v1/completions", "{\"prompt\": \"a\"}").statusCode())
                    .isEqualTo(200);
        }
    }

    @Test
    void listsItsModelAndWritesMetrics() throws Exception {
        int port = serve(says("x"));
        var models = TestClient.json(TestClient.get(port, "/v1/models").body());
        assertThat(models.at("/data/0/id").asString()).isEqualTo("test-model");
        var metrics = TestClient.get(port, "/metrics").body();
        assertThat(MetricsPage.find(metrics, "kvferry_blocks", "kind=\"free\"")).contains(90.0);
        assertThat(MetricsPage.find(metrics, "kvferry_kv_load_bytes_total", "connector=\"disk\""))
                .contains(4096.0);
        assertThat(metrics.lines().filter(line -> line.startsWith("# TYPE kvferry_blocks")))
                .hasSize(1);
    }

    @Test
    void requestsAreLoggedAsTheServerIsShipped() {
        assertThat(LoggerFactory.getLogger("kvferry.access").isInfoEnabled()).isTrue();
    }

    @Test
    void countsPromptTokensByWhereTheirKvCameFrom() throws Exception {
        int port = serve(says("x"));
        for (int i = 0; i < 2; i++) {
            TestClient.post(port, "/v1/completions", "{\"prompt\": \"abcdef\"}");
        }
        var metrics = TestClient.get(port, "/metrics").body();
        var name = "kvferry_prompt_tokens_by_source_total";
        assertThat(MetricsPage.find(metrics, name, "source=\"own cache\"")).contains(8.0);
        assertThat(MetricsPage.find(metrics, name, "connector=\"disk\"")).contains(32.0);
        assertThat(MetricsPage.find(metrics, name, "source=\"computed\"")).contains(4.0);
    }

    @Test
    void letsRunningRequestsEndBeforeItStops() throws Exception {
        int port = serve(_ -> {});
        var answer = new CompletableFuture<Integer>();
        var client =
                Thread.ofVirtual()
                        .start(() -> {
                            try {
                                answer.complete(
                                        TestClient.post(
                                                        port,
                                                        "/v1/completions",
                                                        "{\"prompt\": \"a\"}")
                                                .statusCode());
                            } catch (Exception e) {
                                answer.completeExceptionally(e);
                            }
                        });
        var handle = engine.submitted.take();
        var service = Objects.requireNonNull(http);
        var stopper = Thread.ofVirtual().start(service::close);
        while (!service.isStopping()) {
            Thread.onSpinWait();
        }
        handle.say("done").finish(FinishReason.LENGTH, TransferParams.EMPTY);
        assertThat(answer.get(40, TimeUnit.SECONDS)).isEqualTo(200);
        stopper.join();
        client.join();
    }
}
