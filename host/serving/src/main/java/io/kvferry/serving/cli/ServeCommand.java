// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.events.KvEventPublisher;
import io.kvferry.serving.events.KvEventsConfig;
import io.kvferry.serving.http.EngineAccess;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.OpenAiApi;
import io.kvferry.serving.http.SamplingDefaults;
import io.kvferry.serving.http.TransferTrust;
import io.kvferry.serving.metrics.ThroughputLog;
import io.kvferry.spi.Deadline;

import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;

/// `kvferry serve`: an engine behind the HTTP API.
@Command(
        name = "serve",
        mixinStandardHelpOptions = true,
        description = "Serves a model over an OpenAI-compatible HTTP API, until it is stopped.")
final class ServeCommand implements Callable<Integer> {
    private static final Duration LONGEST_WARM_UP = Duration.ofSeconds(10);

    @Mixin final EngineOptions engine = new EngineOptions();

    @Mixin final HttpOptions http = new HttpOptions();

    @Option(
            names = "--served-model-name",
            paramLabel = "NAME",
            description = "Name of the model towards clients (default: its own).")
    String servedName = "";

    @Option(
            names = "--trusted-peers",
            split = ",",
            paramLabel = "ADDRESS",
            description =
                    "Addresses or networks whose kv_transfer_params, request ids that name engines and resets of the caches are taken without a signature (default: this host while there is no secret, else none).")
    List<String> trustedPeers = new ArrayList<>();

    @Option(
            names = "--kv-events-config",
            paramLabel = "JSON",
            description = "Publish which blocks the prefix cache has, vLLM's JSON, or @FILE.")
    Optional<String> kvEvents = Optional.empty();

    @Option(
            names = "--request-timeout",
            paramLabel = "SECONDS",
            defaultValue = "600",
            description = "Longest request (default: ${DEFAULT-VALUE}).")
    int requestSeconds = 600;

    @Option(
            names = "--no-warm-up",
            description =
                    "Do not generate two tokens of the server's own before it takes requests; metrics count them.")
    boolean noWarmUp;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    @Override
    public Integer call() {
        var httpSettings = http.settings();
        HttpOptions.atLeast("--request-timeout", requestSeconds, 1);
        var trust = TransferTrust.of(http.secret(), trustedPeers);
        // Bound before the model is loaded: a port that is taken shows at once.
        try (var daemon = new Daemon(http);
                var service = new HttpService("serve", httpSettings);
                var admin =
                        http.admin()
                                .map(bind -> new HttpService("admin", httpSettings.at(bind)))
                                .orElse(service);
                var events = new Events(kvEventsConfig());
                var assembled = AssembledEngine.open(engine.settings());
                var _ = ThroughputLog.start(assembled.engine()::stats);
                var _ = (Drained) service::close) {
            var model = assembled.engine().model();
            var name = servedName.isBlank() ? model.name() : servedName;
            var access =
                    EngineAccess.of(assembled.engine(), name, SamplingDefaults.read(engine.model));
            events.publisher.ifPresent(publisher -> {
                assembled.engine().onCacheEvent(publisher);
                access.metrics().page().collect(publisher::write);
            });
            OpenAiApi.install(access, service, Duration.ofSeconds(requestSeconds), trust, admin);
            assembled.engine().start();
            if (!noWarmUp) {
                assembled.engine().warmUp(Deadline.in(LONGEST_WARM_UP));
            }
            admin.start();
            service.start();
            var facts = new LinkedHashMap<String, Object>();
            facts.put("url", service.url());
            facts.put("model", name);
            facts.put("runner", model.runner());
            facts.put("context_tokens", model.contextTokens());
            if (admin != service) {
                facts.put("metrics", admin.url() + "/metrics");
            }
            events.publisher.ifPresent(publisher -> {
                facts.put("kv_events", publisher.endpoint());
                if (!publisher.replayEndpoint().isEmpty()) {
                    facts.put("kv_events_replay", publisher.replayEndpoint());
                }
            });
            var ready = "serving " + name + " (" + model.runner() + ") on " + service.url();
            daemon.announceAndWait(spec.commandLine().getOut(), ready, facts);
        }
        return ExitCode.OK;
    }

    private Optional<KvEventsConfig> kvEventsConfig() {
        return kvEvents.flatMap(text ->
                KvEventsConfig.of(
                        EngineOptions.jsonOf(EngineOptions.textOf("--kv-events-config", text))));
    }

    /// The publisher of cache events, if one is configured.
    private static final class Events implements AutoCloseable {
        final Optional<KvEventPublisher> publisher;

        Events(Optional<KvEventsConfig> config) {
            publisher = config.map(KvEventPublisher::open);
        }

        @Override
        public void close() {
            publisher.ifPresent(KvEventPublisher::close);
        }
    }

    /// Requests end before the engine closes.
    private interface Drained extends AutoCloseable {
        @Override
        void close();
    }
}
