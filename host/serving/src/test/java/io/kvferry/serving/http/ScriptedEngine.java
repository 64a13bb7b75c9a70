// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.Usage;
import io.kvferry.serving.metrics.EngineMetrics;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.Stats;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// Stands where an engine stands; each request is played by a script.
final class ScriptedEngine {
    final BlockingQueue<Handle> submitted = new LinkedBlockingQueue<>();

    /// For each reset, whether it was of the connectors' stores too.
    final BlockingQueue<Boolean> resets = new LinkedBlockingQueue<>();

    private final Consumer<Handle> script;

    /// The part that is degraded, empty for none.
    volatile String degraded = "";

    SamplingDefaults defaults = SamplingDefaults.NONE;

    ScriptedEngine(Consumer<Handle> script) {
        this.script = script;
    }

    EngineAccess access() {
        return new EngineAccess(
                "test-model",
                512,
                new ByteTokenizer(),
                256,
                defaults,
                this::submit,
                this::stats,
                (_, external) -> resets.add(external),
                metrics());
    }

    private EngineMetrics metrics() {
        var metrics = new EngineMetrics("test-model", 4096);
        metrics.watch(this::stats, "MultiConnector", "");
        return metrics;
    }

    private RequestHandle submit(GenerationRequest request) {
        var handle = new Handle(request);
        submitted.add(handle);
        script.accept(handle);
        return handle;
    }

    private EngineStats stats() {
        return new EngineStats(
                1,
                0,
                0,
                0,
                2,
                0,
                0,
                90,
                100,
                7,
                0,
                0,
                0,
                11,
                Map.of("requests_finished", 5L),
                Stats.counter("disk/load_bytes", 4096),
                Stats.EMPTY,
                "",
                degraded);
    }

    /// A request under way.
    static final class Handle implements RequestHandle {
        final GenerationRequest request;
        final CompletableFuture<Boolean> aborted = new CompletableFuture<>();
        final CompletableFuture<Boolean> released = new CompletableFuture<>();
        private final BlockingQueue<StreamEvent> events = new LinkedBlockingQueue<>();
        private final CompletableFuture<Outcome> outcome = new CompletableFuture<>();
        private final StringBuilder said = new StringBuilder();

        Handle(GenerationRequest request) {
            this.request = request;
        }

        Handle say(String text) {
            for (int token : new ByteTokenizer().encode(text)) {
                events.add(new StreamEvent.Token(said.length(), token, Optional.empty()));
                said.append((char) token);
            }
            return this;
        }

        void finish(FinishReason reason, TransferParams params) {
            int[] tokens = said.chars().toArray();
            var usage =
                    new Usage(
                            request.prompt().length,
                            tokens.length,
                            4,
                            List.of(new LookupResult.Share("disk", LookupResult.Tier.DISK, 16)),
                            2,
                            0);
            end(new Outcome.Finished(reason, tokens, params, TransferParams.EMPTY, usage));
        }

        void end(Outcome result) {
            outcome.complete(result);
            events.add(new StreamEvent.Ended(result));
        }

        @Override
        public String id() {
            return "r";
        }

        @Override
        public Optional<StreamEvent> next(Deadline limit) {
            try {
                return Optional.ofNullable(
                        events.poll(Math.max(0, limit.remainingNanos()), TimeUnit.NANOSECONDS));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return Optional.empty();
            }
        }

        @Override
        public CompletionStage<Outcome> outcome() {
            return outcome;
        }

        @Override
        public Optional<Outcome> await(Deadline limit) {
            return Optional.ofNullable(
                    outcome.copy()
                            .completeOnTimeout(
                                    null, Math.max(0, limit.remainingNanos()), TimeUnit.NANOSECONDS)
                            .join());
        }

        @Override
        public void release() {
            released.complete(true);
            abort();
        }

        @Override
        public void abort() {
            if (aborted.complete(true)) {
                finish(FinishReason.ABORT, TransferParams.EMPTY);
            }
        }
    }
}
