// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.RequestHandle.StreamEvent;
import io.kvferry.engine.Usage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;

/// OpenAI's completion endpoints over an engine: `/v1/completions`, `/v1/chat/completions`,
/// `/v1/models`, with `/health` and `/metrics` beside them.
///
/// A stream sends its status line with the first token, so that a request that fails before has a
/// proper status. A client that hangs up aborts its request.
///
/// Threading: handlers run on the threads of the [HttpService].
public final class OpenAiApi {
    private static final Logger LOG = LoggerFactory.getLogger(OpenAiApi.class);
    private static final Duration HEARTBEAT = Duration.ofSeconds(10);

    private final EngineAccess engine;
    private final CompletionParser parser;
    private final HttpService http;
    private final Duration requestLimit;
    private final TransferTrust trust;
    private final HeldRequests held = new HeldRequests();
    private final PromptSources sources = new PromptSources();
    private final long startedSeconds = System.currentTimeMillis() / 1000;

    private OpenAiApi(
            EngineAccess engine, HttpService http, Duration requestLimit, TransferTrust trust) {
        this.trust = trust;
        this.engine = engine;
        this.parser = new CompletionParser(engine);
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
        http.routeAdmin("/health", api::health);
        admin.routeAdmin("/health", api::health);
        admin.routeAdmin("/metrics", api::metrics);
    }

    private void complete(HttpCall call, boolean chat) throws IOException {
        var body = Json.parseObject(call.body());
        RequestCheck.check(chat, body);
        var request = parser.parse(chat, body);
        var deadline = Deadline.in(requestLimit);
        if (!request.generation().kvParams().isEmpty()) {
            trust.check(call, "kv_transfer_params");
        }
        if (!request.generation().ecParams().isEmpty()) {
            trust.check(call, "ec_transfer_params");
        }
        var handle = engine.submit().apply(request.generation().withExternalId(call.requestId()));
        call.onCancel(handle::abort);
        call.header(HeldRequests.HEADER)
                .filter(_ -> trust.covers(call))
                .ifPresent(token -> held.add(token, handle));
        var json = new CompletionJson(request, call.requestId(), engine.modelName());
        if (request.stream()) {
            stream(call, request, handle, json, deadline);
        } else {
            answer(call, request, handle, json, deadline);
        }
    }

    private void answer(
            HttpCall call,
            CompletionRequest request,
            RequestHandle handle,
            CompletionJson json,
            Deadline deadline)
            throws IOException {
        var outcome = finished(call, handle.await(deadline), handle);
        var text = newText(request);
        var whole = new StringBuilder();
        for (int token : outcome.tokens()) {
            whole.append(text.append(token));
        }
        call.respondJson(200, json.whole(whole.append(text.end()).toString(), outcome));
    }

    private StopText newText(CompletionRequest request) {
        return new StopText(
                engine.tokenizer().streamDecoder(), request.generation().sampling().stop());
    }

    /// The regular end of a request, or the problem that stands for any other.
    private Outcome.Finished finished(
            HttpCall call, Optional<Outcome> outcome, RequestHandle handle) throws IOException {
        if (outcome.isEmpty()) {
            handle.abort();
            throw HttpProblem.of(504, "timeout", "the request did not end in time and was aborted");
        }
        return switch (outcome.get()) {
            case Outcome.Failed(Failure failure, Usage _) -> {
                LOG.warn("{} failed: {}", handle.id(), failure);
                throw HttpProblem.of(failure);
            }
            case Outcome.Finished done when done.reason() == FinishReason.ABORT -> {
                if (call.isCancelled()) {
                    throw new IOException("the client went away");
                }
                throw HttpProblem.of(503, "aborted", "the engine aborted the request");
            }
            case Outcome.Finished done -> {
                sources.add(done.usage());
                yield done;
            }
        };
    }

    private void stream(
            HttpCall call,
            CompletionRequest request,
            RequestHandle handle,
            CompletionJson json,
            Deadline deadline)
            throws IOException {
        var first = handle.next(deadline);
        if (first.isEmpty() || first.get() instanceof StreamEvent.Ended(Outcome.Failed _)) {
            finished(call, handle.await(deadline), handle);
        }
        try (var out = call.stream(200, "text/event-stream; charset=utf-8")) {
            if (request.chat()) {
                send(out, json.roleChunk());
            }
            try {
                relay(call, request, handle, json, out, first.orElseThrow(), deadline);
            } catch (HttpProblem problem) {
                out.write(("data: " + problem.toJson() + "\n\n").getBytes(StandardCharsets.UTF_8));
            }
            out.write("data: [DONE]\n\n".getBytes(StandardCharsets.UTF_8));
            out.flush();
        } catch (IOException e) {
            handle.abort();
            throw e;
        }
    }

    private void relay(
            HttpCall call,
            CompletionRequest request,
            RequestHandle handle,
            CompletionJson json,
            OutputStream out,
            StreamEvent first,
            Deadline deadline)
            throws IOException {
        var text = newText(request);
        var event = Optional.of(first);
        while (true) {
            if (event.isEmpty()) {
                if (deadline.passed()) {
                    finished(call, Optional.empty(), handle);
                }
                out.write(
                        ":\n\n"
                                .getBytes(
                                        StandardCharsets
                                                .UTF_8)); // a comment: tells whether the client is
                // there
                out.flush();
            } else if (event.get() instanceof StreamEvent.Token(int _, int token, var _)) {
                send(out, json.chunk(text.append(token), new int[] {token}, null));
            } else if (event.get() instanceof StreamEvent.Ended(Outcome ended)) {
                var outcome = finished(call, Optional.of(ended), handle);
                var last = json.chunk(text.end(), new int[0], outcome.reason());
                CompletionJson.putParams(last, outcome);
                send(out, last);
                if (request.includeUsage()) {
                    send(out, json.usageChunk(outcome.usage()));
                }
                return;
            }
            event = handle.next(Deadline.in(HEARTBEAT).earlier(deadline));
        }
    }

    private static void send(OutputStream out, JsonNode json) throws IOException {
        out.write(("data: " + Json.text(json) + "\n\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
    }

    /// `{"hold": token}`: what the request with this token holds for a decode instance is given
    /// back, because none will fetch it.
    private void releaseHold(HttpCall call) throws IOException {
        trust.check(call, "a release");
        var token = Fields.text(Json.parseObject(call.body()), "hold", "");
        if (token.isEmpty()) {
            throw HttpProblem.badRequest("hold", "hold must be the token of a request");
        }
        call.respondJson(200, Json.object().put("released", held.release(token)));
    }

    private void models(HttpCall call) throws IOException {
        var json = Json.object().put("object", "list");
        json.putArray("data")
                .addObject()
                .put("id", engine.modelName())
                .put("object", "model")
                .put("created", startedSeconds)
                .put("owned_by", "kvferry")
                .put("max_model_len", engine.contextTokens());
        call.respondJson(200, json);
    }

    private void health(HttpCall call) throws IOException {
        var reason = http.isStopping() ? "stopping" : engine.stats().get().health();
        var json = Json.object().put("status", reason.isEmpty() ? "ok" : "unavailable");
        if (!reason.isEmpty()) {
            json.put("reason", reason);
        }
        call.respondJson(reason.isEmpty() ? 200 : 503, json);
    }

    private void metrics(HttpCall call) throws IOException {
        var text = EngineMetrics.write(engine, http.runningCalls(), sources);
        call.respondText(200, PrometheusText.CONTENT_TYPE, text);
    }
}
