// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.RequestCheck;
import io.kvferry.serving.metrics.HttpMetrics;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;

import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.atomic.LongAdder;

/// The P/D router: `/v1/completions`, `/v1/chat/completions`, `/v1/models`, `/health`, `/metrics`.
///
/// Each request gets one deadline that covers all its legs; a client that disconnects cancels them
/// all. A request is checked before it is sent to any instance, and refused with 503 while no
/// decode instance works. Which instance gets it is decided by [RoutingPolicy]; one that cannot be
/// reached is passed over until its `/health` answers 200 again ([Upstream]). Unless a decode
/// instance has used the KV of a prefill instance, the prefill instance is asked to release it.
///
/// Threading: see [HttpService]. [#close] stops intake, lets requests end, then cancels the rest.
public final class PdRouter implements AutoCloseable {
    private final RouterSettings settings;
    private final Backends backends;
    private final PrefillStage prefill;
    private final DecodeStage decode;
    private final MooncakeStage mooncake;
    private final HttpService http;
    private final HttpService admin;
    private final Optional<Registrations> registrations;
    private final LongAdder requests = new LongAdder();

    /// Binds the address; [#start] begins to serve.
    public PdRouter(RouterSettings settings, HttpService.Settings httpSettings) {
        this(settings, httpSettings, Optional.empty());
    }

    /// @param adminAddress where `/metrics` is served instead
    public PdRouter(
            RouterSettings settings,
            HttpService.Settings httpSettings,
            Optional<InetSocketAddress> adminAddress) {
        this(settings, httpSettings, adminAddress, Optional.empty());
    }

    /// @param adminAddress where `/metrics` is served instead
    /// @param registration where instances register themselves
    public PdRouter(
            RouterSettings settings,
            HttpService.Settings httpSettings,
            Optional<InetSocketAddress> adminAddress,
            Optional<InetSocketAddress> registration) {
        this.settings = settings;
        http = new HttpService("router", httpSettings);
        admin =
                adminAddress
                        .map(bind -> new HttpService("admin", httpSettings.at(bind)))
                        .orElse(http);
        backends = new Backends(settings);
        prefill = new PrefillStage(backends, settings);
        decode = new DecodeStage(backends, settings);
        mooncake = new MooncakeStage(backends, decode, settings);
        http.route("POST", "/v1/completions", call -> relay(call, "/v1/completions"));
        http.route("POST", "/v1/chat/completions", call -> relay(call, "/v1/chat/completions"));
        http.route("GET", "/v1/models", this::models);
        http.route("GET", "/v1/models/*", this::model);
        http.route("POST", "/tokenize", call -> forward(call, "/tokenize"));
        http.route("POST", "/detokenize", call -> forward(call, "/detokenize"));
        http.route("GET", "/version", call -> forward(call, "/version"));
        http.routeAdmin("/health", this::health);
        admin.routeAdmin("/health", this::health);
        var page = new MetricsPage();
        HttpMetrics.watch(page, http::figures);
        page.collect(new RouterSamples(backends, prefill, decode, mooncake, requests)::write);
        admin.routeMetrics(page);
        registrations =
                registration.map(bind -> new Registrations(bind, settings.secret(), backends));
    }

    public void start() {
        admin.start();
        http.start();
    }

    public int port() {
        return http.port();
    }

    /// Where `/metrics` is served.
    int adminPort() {
        return admin.port();
    }

    /// Where instances register themselves, `tcp://host:port`.
    public Optional<String> registrationAddress() {
        return registrations.map(Registrations::address);
    }

    /// Where it listens, as the beginning of a URL.
    public String url() {
        return http.url();
    }

    /// Where `/metrics` is served, as a URL.
    public String metricsUrl() {
        return admin.url() + "/metrics";
    }

    /// Instances trust what the router sends, and these fields name hosts to fetch KV and encoder
    /// outputs from.
    private static void refuseTransferParams(ObjectNode body) {
        for (var field : new String[] {"kv_transfer_params", "ec_transfer_params"}) {
            if (body.path(field) instanceof ObjectNode given && !given.isEmpty()) {
                throw HttpProblem.badRequest(
                        field, "the router takes no " + field + " from clients; send none");
            }
        }
    }

    private void relay(HttpCall call, String path) throws IOException, InterruptedException {
        requests.increment();
        var deadline = Deadline.in(settings.requestTimeout());
        var body = Json.parseObject(call.body());
        refuseTransferParams(body);
        RequestCheck.check(path.endsWith("/chat/completions"), body);
        decode.requireInstance();
        var prompt =
                new Prompt(
                        Job.prefix(body),
                        backends.tokenization.tokens(call, body),
                        body.path("cache_salt").asString(""));
        var job = new Job(call, path, body, prompt, deadline);
        try (var held = new HeldKv(backends, job)) {
            if (job.scoresPrompt()) {
                decode.relay(job, Json.object(), held, DecodeStage.Canceller.NONE);
                return;
            }
            if (settings.handOff() == HandOff.MOONCAKE || settings.handOff() == HandOff.P2P) {
                mooncake.run(job, held);
                return;
            }
            switch (prefill.run(job, settings.handOff(), held)) {
                case PrefillStage.Result.Refused(Answer answer) -> answer.relayTo(call);
                case PrefillStage.Result.Ready(ObjectNode params) ->
                        decode.relay(
                                job,
                                settings.handOff() == HandOff.PARAMS ? params : Json.object(),
                                held,
                                DecodeStage.Canceller.NONE);
            }
        }
    }

    private void models(HttpCall call) throws IOException, InterruptedException {
        forward(call, "/v1/models");
    }

    /// Passes on the answer of a decode instance; all serve one model.
    private void forward(HttpCall call, String path) throws IOException, InterruptedException {
        var answer = ask(call, path);
        call.respond(answer.statusCode(), "application/json", answer.body());
    }

    /// `/v1/models/{id}`, out of the list; an id may contain slashes.
    private void model(HttpCall call) throws IOException, InterruptedException {
        var id =
                URLDecoder.decode(
                        call.path().substring("/v1/models/".length()), StandardCharsets.UTF_8);
        var answer = ask(call, "/v1/models");
        if (answer.statusCode() != 200) {
            call.respond(answer.statusCode(), "application/json", answer.body());
            return;
        }
        for (var model : Json.parseObject(answer.body()).path("data")) {
            if (model.path("id").asString("").equals(id)) {
                call.respondJson(200, model);
                return;
            }
        }
        throw HttpProblem.of(404, "model_not_found", "the model " + id + " is not served here");
    }

    private HttpResponse<byte[]> ask(HttpCall call, String path)
            throws IOException, InterruptedException {
        var tried = new HashSet<Upstream>();
        for (var picked = backends.decode.pick(Prompt.NONE, tried);
                picked.isPresent() && tried.size() < settings.maxAttempts();
                picked = backends.decode.pick(Prompt.NONE, tried)) {
            var upstream = picked.get();
            tried.add(upstream);
            try {
                var answer = backends.forward(upstream, path, call);
                upstream.answered();
                return answer;
            } catch (LegException e) {
                // A time-out does not show that the instance is down: it may be busy, or the texts
                // are long.
                if (call.method().equals("GET") && !e.started()) {
                    upstream.failed(String.valueOf(e.getMessage()));
                } else {
                    upstream.undecided();
                }
            }
        }
        throw HttpProblem.of(502, "decode_failed", "no decode instance can be reached");
    }

    private void health(HttpCall call) throws IOException {
        boolean works =
                !http.isStopping()
                        && backends.decode.upCount() > 0
                        && (backends.prefill.upCount() > 0 || settings.recomputeWithoutPrefill());
        var json =
                Json.object()
                        .put("status", works ? "ok" : "unavailable")
                        .put("prefill_instances", backends.prefill.upCount())
                        .put("decode_instances", backends.decode.upCount());
        var list = json.putArray("instances");
        for (var upstream : backends.all()) {
            list.addObject()
                    .put("role", upstream.role)
                    .put("url", upstream.base.toString())
                    .put("up", upstream.isUp())
                    .put("circuit", upstream.circuit().name().toLowerCase(Locale.ROOT))
                    .put("in_flight", upstream.inFlight.get());
        }
        call.respondJson(works ? 200 : 503, json);
    }

    @Override
    public void close() {
        http.close();
        admin.close();
        registrations.ifPresent(Registrations::close);
        backends.close();
    }
}
