// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.RequestHandle;
import io.kvferry.serving.metrics.HttpMetrics;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/// OpenAI's completion endpoints over an engine: `/v1/completions`, `/v1/chat/completions`,
/// `/v1/models` and `/v1/models/{id}`; vLLM's `/tokenize`, `/detokenize`, `/version` and
/// `/reset_prefix_cache`; `/health` and `/metrics`. A client that disconnects aborts its request.
///
/// Threading: handlers run on the threads of the [HttpService].
public final class OpenAiApi {
    private static final Duration HEARTBEAT = Duration.ofSeconds(10);
    private static final Duration RESET_LIMIT = Duration.ofSeconds(30);

    private final EngineAccess engine;
    private final PromptTokens tokens;
    private final CompletionParser parser;
    private final HttpService http;
    private final Duration requestLimit;
    private final TransferTrust trust;
    private final HeldRequests held = new HeldRequests();
    private final TakenLegs taken = new TakenLegs();
    private final long startedSeconds = System.currentTimeMillis() / 1000;

    private OpenAiApi(
            EngineAccess engine, HttpService http, Duration requestLimit, TransferTrust trust) {
        this.trust = trust;
        this.engine = engine;
        this.tokens = new PromptTokens(engine.tokenizer(), requestLimit);
        this.parser = new CompletionParser(engine, tokens);
        this.http = http;
        this.requestLimit = requestLimit;
    }

    /// Adds the endpoints to a service that is not started yet.
    ///
    /// @param requestLimit after which a request is aborted, however far it is
    /// @param trust who may set transfer params and release holds
    /// @param admin what serves `/metrics`, and `/health` too; may be `http`
    public static void install(
            EngineAccess engine,
            HttpService http,
            Duration requestLimit,
            TransferTrust trust,
            HttpService admin) {
        var api = new OpenAiApi(engine, http, requestLimit, trust);
        http.routeAdmin("POST", "/kvferry/release_hold", api::releaseHold);
        http.route("POST", "/v1/completions", call -> api.complete(call, false));
        http.route("POST", "/v1/chat/completions", call -> api.complete(call, true));
        http.routeAdmin("/v1/models", api::models);
        http.routeAdmin("/v1/models/*", api::model);
        http.route("POST", "/tokenize", api::tokenize);
        http.route("POST", "/detokenize", api::detokenize);
        http.routeAdmin("/version", api::version);
        http.routeAdmin("/health", api::health);
        admin.routeAdmin("/health", api::health);
        admin.routeMetrics(engine.metrics().page());
        HttpMetrics.watch(engine.metrics().page(), http::figures);
        boolean hasKey = !admin.settings().apiKey().isEmpty();
        admin.route("POST", "/reset_prefix_cache", call -> api.resetPrefixCache(call, hasKey));
    }

    private void complete(HttpCall call, boolean chat) throws IOException, InterruptedException {
        var body = Json.parseObject(call.body());
        RequestCheck.check(chat, body);
        var request = parser.parse(chat, body);
        var first = request.generations().getFirst();
        if (!first.kvParams().values().isEmpty()) {
            trust.check(call, "kv_transfer_params");
        }
        if (!first.ecParams().values().isEmpty()) {
            trust.check(call, "ec_transfer_params");
        }
        if (TransferTrust.namesEngines(call.requestId())) {
            trust.check(call, "a request id that names engines");
        }
        call.header(TakenLegs.HEADER).ifPresent(taken::take);
        var deadline = Deadline.in(requestLimit);
        var handles = submit(call, request);
        call.header(HeldRequests.HEADER)
                .filter(_ -> trust.covers(call))
                .ifPresent(token -> held.add(token, handles.getFirst()));
        var json =
                new CompletionJson(
                        request, engine.tokenizer(), call.requestId(), engine.modelName());
        new CompletionRun(
                        call,
                        request,
                        handles,
                        engine.tokenizer(),
                        json,
                        deadline,
                        HEARTBEAT,
                        new AnswerCounts(engine.metrics(), request))
                .run();
    }

    /// All generations or none.
    private List<RequestHandle> submit(HttpCall call, CompletionRequest request) {
        var handles = new ArrayList<RequestHandle>();
        try {
            for (var generation : request.generations()) {
                var handle = engine.submit().apply(generation.withExternalId(call.requestId()));
                handles.add(handle);
                call.onCancel(handle::abort);
            }
        } catch (RuntimeException e) {
            handles.forEach(RequestHandle::abort);
            if (e instanceof KvFerryException refusal && refusal.code() == ErrorCode.BACKPRESSURE) {
                engine.metrics().rejected();
            }
            throw e;
        }
        return handles;
    }

    /// `{"hold": token}`: releases the blocks that the request with this token holds for a decode
    /// instance, because none will fetch them.
    private void releaseHold(HttpCall call) throws IOException {
        trust.check(call, "a release");
        var token = BodyFields.text(Json.parseObject(call.body()), "hold", "");
        if (token.isEmpty()) {
            throw HttpProblem.badRequest("hold", "hold must be the token of a request");
        }
        call.respondJson(200, Json.object().put("released", held.release(token)));
    }

    private ObjectNode model() {
        return Json.object()
                .put("id", engine.modelName())
                .put("object", "model")
                .put("created", startedSeconds)
                .put("owned_by", "kvferry")
                .put("root", engine.modelName())
                .putNull("parent")
                .put("max_model_len", engine.contextTokens());
    }

    private void models(HttpCall call) throws IOException {
        var json = Json.object().put("object", "list");
        json.putArray("data").add(model());
        call.respondJson(200, json);
    }

    /// `/v1/models/{id}`; an id may contain slashes.
    private void model(HttpCall call) throws IOException {
        var id =
                URLDecoder.decode(
                        call.path().substring("/v1/models/".length()), StandardCharsets.UTF_8);
        if (!id.equals(engine.modelName())) {
            throw HttpProblem.of(
                    404,
                    "model_not_found",
                    "the model " + id + " is not served here; " + engine.modelName() + " is");
        }
        call.respondJson(200, model());
    }

    /// `{"prompt": text}` or `{"messages": [...]}`, as vLLM.
    private void tokenize(HttpCall call) throws IOException, InterruptedException {
        var body = Json.parseObject(call.body());
        boolean chat = body.has("messages");
        RequestCheck.check(chat, body);
        if (!chat && !body.path("prompt").isString()) {
            throw HttpProblem.badRequest("prompt", "prompt must be a text");
        }
        parser.checkModel(body);
        RequestFields.refuseUntokenized(chat, body);
        int[] prompt = chat ? parser.chatPrompt(body) : parser.prompts(body).getFirst();
        var json =
                Json.object()
                        .put("count", prompt.length)
                        .put("max_model_len", engine.contextTokens());
        var array = json.putArray("tokens");
        for (int token : prompt) {
            array.add(token);
        }
        json.putNull("token_strs");
        call.respondJson(200, json);
    }

    private void detokenize(HttpCall call) throws IOException, InterruptedException {
        var body = Json.parseObject(call.body());
        parser.checkModel(body);
        RequestFields.refuseBeyond(Set.of("model", "tokens"), "", body);
        var given = body.path("tokens");
        RequestCheck.tokenIds("tokens", given);
        var text = tokens.decode(parser.tokenIds("tokens", given));
        call.respondJson(200, Json.object().put("prompt", text));
    }

    private void version(HttpCall call) throws IOException {
        var version = OpenAiApi.class.getPackage().getImplementationVersion();
        call.respondJson(
                200, Json.object().put("version", version == null ? "development" : version));
    }

    private void health(HttpCall call) throws IOException {
        var stats = engine.stats().get();
        var reason = http.isStopping() ? "stopping" : stats.health();
        // Without its connector an engine serves all requests, only slower, and workers that are
        // started again will soon: no reason to route around.
        boolean degraded = reason.isEmpty() && !stats.degraded().isEmpty();
        var status = degraded ? "degraded" : reason.isEmpty() ? "ok" : "unavailable";
        var json = Json.object().put("status", status);
        if (degraded || !reason.isEmpty()) {
            json.put("reason", degraded ? stats.degraded() : reason);
        }
        call.respondJson(reason.isEmpty() ? 200 : 503, json);
    }

    /// As in vLLM: drops the engine's cached blocks that no request uses and, with
    /// `reset_external=true`, those that the connectors keep. Without an API key only callers that
    /// may set transfer params may do that.
    private void resetPrefixCache(HttpCall call, boolean keyChecked) throws IOException {
        if (!keyChecked) {
            trust.check(call, "a reset of the caches");
        }
        int query = call.target().indexOf('?');
        boolean external =
                query >= 0
                        && List.of(call.target().substring(query + 1).split("&"))
                                .contains("reset_external=true");
        if (!engine.reset().reset(Deadline.in(RESET_LIMIT), external)) {
            throw HttpProblem.of(
                    503, "reset_failed", "not everything could be removed; try again later");
        }
        call.respondText(200, "text/plain", "");
    }
}
