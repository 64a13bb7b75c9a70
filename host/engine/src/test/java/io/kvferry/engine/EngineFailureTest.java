// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.testkit.AlteredKv;
import io.kvferry.engine.testkit.AlteredModel;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;

/// Unexpected exceptions: the engine ends with a code, or continues without the request or plugin
/// at fault. No caller waits for ever.
class EngineFailureTest {
    private static final Duration SOON = Duration.ofSeconds(30);

    private final ScriptedKv kv = new ScriptedKv(new ConcurrentHashMap<>());

    private static Outcome await(RequestHandle handle) {
        return handle.await(Deadline.in(SOON)).orElseThrow();
    }

    private static ErrorCode code(RequestHandle handle) {
        return ((Outcome.Failed) await(handle)).failure().code();
    }

    /// Also one that is no Exception: the forward pass has no state that the engine relies on.
    @Test
    void anErrorOfTheRunnerFailsTheRequestsOfItsStepAlone() {
        var left = new AtomicInteger(1);
        var runner =
                AlteredModel.withSteps((model, batch, output, hooks) -> {
                    if (left.getAndDecrement() == 1) {
                        throw new OutOfMemoryError("scripted");
                    }
                    model.execute(batch, output, hooks);
                });
        var settings = EngineConfig.of(runner, Path.of(""), Map.of("verify", "all"));
        try (var engine = Engine.open(settings.blockTokens(4).blockCount(64)).start()) {
            assertThat(code(engine.submit(request(prompt(1, 23), 10))))
                    .isEqualTo(ErrorCode.INTERNAL);
            assertThat(await(engine.submit(request(prompt(1, 23), 10))))
                    .isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    @Test
    void anyThrowableOfTheSchedulerEndsTheEngineWithACode() {
        var engine =
                Engine.open(
                                config(Map.of("step_time", "20ms"))
                                        .blockCount(64)
                                        .closeLimit(Duration.ofMillis(50))
                                        .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))
                        .start();
        try (engine) {
            var all = new ArrayList<RequestHandle>();
            for (int i = 0; i < 5; i++) {
                try {
                    all.add(engine.submit(request(prompt(i, 23), 200)));
                } catch (KvFerryException e) {
                    assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE);
                }
            }
            engine.core.post(() -> {
                throw new InternalError("scripted: nothing catches this");
            });
            assertThat(code(all.getFirst())).isEqualTo(ErrorCode.INTERNAL);
            all.forEach(handle -> assertThat(await(handle)).isInstanceOf(Outcome.Failed.class));
            assertThat(engine.stats().health()).contains("scripted");
            assertThatThrownBy(() -> engine.submit(request(prompt(9, 23), 10)))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE));
        }
        assertThat(kv.calls).contains("closeWorker 0", "closeScheduler");
        assertThat(engine.stats().freeBlocks()).isEqualTo(64);
    }

    @Test
    void anEventSinkThatThrowsIsNotTheEnginesEnd() {
        var host =
                HostServices.NONE.with(
                        _ -> {
                            throw new IllegalStateException("scripted");
                        },
                        () -> {});
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all"))
                                .host(host)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 10));
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    @Test
    void aTokenizerThatThrowsFailsItsRequestOnly() {
        try (var engine =
                Engine.open(
                        EngineConfig.of(decodingBadly(), Path.of(""), Map.of())
                                .blockTokens(4)
                                .blockCount(64))) {
            var withStop =
                    engine.submit(
                            GenerationRequest.of(
                                    prompt(1, 23),
                                    SamplingParams.greedy(10).withStop(List.of("never"))));
            var plain = engine.submit(request(prompt(2, 23), 10));
            for (int i = 0; i < 1000 && plain.await(Deadline.in(Duration.ZERO)).isEmpty(); i++) {
                engine.step();
            }
            assertThat(code(withStop)).isEqualTo(ErrorCode.INTERNAL);
            assertThat(await(plain)).isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().health()).isEmpty();
            assertThat(engine.stats().freeBlocks()).isEqualTo(64);
        }
    }

    /// The synthetic model with a tokenizer whose decoder throws.
    private static ModelRunnerProvider decodingBadly() {
        return proxy(
                ModelRunnerProvider.class,
                new SyntheticProvider(),
                "open",
                model ->
                        proxy(
                                Model.class,
                                (Model) model,
                                "tokenizer",
                                tokenizer ->
                                        proxy(
                                                Tokenizer.class,
                                                (Tokenizer) tokenizer,
                                                "streamDecoder",
                                                _ -> {
                                                    return new Tokenizer.StreamDecoder() {
                                                        @Override
                                                        public String append(int token) {
                                                            throw new IllegalStateException(
                                                                    "scripted");
                                                        }

                                                        @Override
                                                        public String flush() {
                                                            return "";
                                                        }
                                                    };
                                                })));
    }

    private static <T> T proxy(Class<T> type, T target, String method, UnaryOperator<Object> with) {
        return type.cast(
                Proxy.newProxyInstance(
                        EngineFailureTest.class.getClassLoader(),
                        new Class<?>[] {type},
                        (_, called, arguments) -> {
                            try {
                                var answer = called.invoke(target, arguments);
                                return called.getName().equals(method)
                                        ? with.apply(answer)
                                        : answer;
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        }));
    }

    @ParameterizedTest
    @ValueSource(strings = {"completions", "completion", "result", "payload", "stats", "report"})
    void aReportWithoutAFieldCostsTheConnectorOnly(String what) {
        var broken =
                AlteredKv.of(
                        kv,
                        (_, method, _, normally) -> {
                            var answer = normally.call();
                            return answer instanceof StepReport report
                                    ? without(what, report)
                                    : answer;
                        });
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all"))
                                .kvConnector(broken, kv.config(LoadFailurePolicy.FAIL)))) {
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 10));
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L))
                    .isPositive();
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    @SuppressWarnings("NullAway") // that is the point
    private static StepReport without(String what, StepReport report) {
        var id = TransferId.load("x", 0);
        return switch (what) {
            case "report" -> null;
            case "completions" ->
                    new StepReport(
                            0, report.step(), null, report.payload(), report.stats(), List.of());
            case "completion" ->
                    new StepReport(
                            0,
                            report.step(),
                            Collections.singletonList(null),
                            report.payload(),
                            report.stats(),
                            List.of());
            case "result" ->
                    new StepReport(
                            0,
                            report.step(),
                            List.of(new Completion(id, 0, null)),
                            report.payload(),
                            report.stats(),
                            List.of());
            case "payload" ->
                    new StepReport(
                            0,
                            report.step(),
                            report.completions(),
                            null,
                            report.stats(),
                            List.of());
            default ->
                    new StepReport(
                            0,
                            report.step(),
                            report.completions(),
                            report.payload(),
                            null,
                            List.of());
        };
    }

    @ParameterizedTest
    @ValueSource(longs = {3600, Long.MAX_VALUE})
    void aPendingLookupEndsAtTheEnginesLimitWhateverItSays(long seconds) {
        var slow =
                AlteredKv.of(
                        kv,
                        (_, method, _, normally) ->
                                method.equals("lookup")
                                        ? new LookupResult.Pending(Duration.ofSeconds(seconds))
                                        : normally.call());
        try (var engine =
                Engine.open(
                                config(Map.of("verify", "all"))
                                        .pendingLookupLimit(Duration.ofMillis(20))
                                        .kvConnector(slow, kv.config(LoadFailurePolicy.FAIL)))
                        .start()) {
            assertThat(await(engine.submit(request(prompt(1, 23), 10))))
                    .isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().counters().getOrDefault("lookups_pending_timeout", 0L))
                    .isEqualTo(1);
        }
    }

    @Test
    void aHugeTokenLimitRunsToTheEndOfTheContext() {
        try (var engine = Engine.open(config(Map.of("context", 100)).maxQueued(2))) {
            for (int i = 0; i < 5; i++) { // more than may be in the engine at once
                var sampling = SamplingParams.greedy(Integer.MAX_VALUE).withIgnoreEos(true);
                var outcome = run(engine, GenerationRequest.of(prompt(1, 23), sampling));
                assertThat(outcome.tokens()).hasSize(100 - 23);
            }
        }
    }

    @Test
    void aRequestThatCannotBeTakenInGivesItsPlaceBack() {
        var model =
                proxy(
                        ModelRunnerProvider.class,
                        new SyntheticProvider(),
                        "open",
                        opened ->
                                proxy(
                                        Model.class,
                                        (Model) opened,
                                        "tokenizer",
                                        tokenizer ->
                                                proxy(
                                                        Tokenizer.class,
                                                        (Tokenizer) tokenizer,
                                                        "streamDecoder",
                                                        _ -> {
                                                            throw new IllegalStateException(
                                                                    "scripted");
                                                        })));
        try (var engine =
                Engine.open(
                        EngineConfig.of(model, Path.of(""), Map.of())
                                .blockTokens(4)
                                .blockCount(64)
                                .maxQueued(1))) {
            var sampling = SamplingParams.greedy(10).withStop(List.of("never"));
            for (int i = 0; i < 3; i++) {
                assertThatThrownBy(
                                () -> engine.submit(GenerationRequest.of(prompt(1, 23), sampling)))
                        .hasMessageContaining("scripted");
            }
            assertThat(run(engine, request(prompt(1, 23), 1)).tokens()).hasSize(1);
        }
    }

    /// Submissions race with the end of the engine; each is refused or gets an outcome.
    @Test
    void everySubmissionDuringCloseGetsAnOutcome() throws InterruptedException {
        for (int round = 0; round < 50; round++) {
            var engine = Engine.open(config(Map.of()).closeLimit(Duration.ofMillis(1))).start();
            var handles = Collections.synchronizedList(new ArrayList<RequestHandle>());
            var submitting =
                    Thread.ofPlatform()
                            .start(() -> {
                                var code = ErrorCode.BACKPRESSURE;
                                while (code == ErrorCode.BACKPRESSURE) {
                                    try {
                                        handles.add(engine.submit(request(prompt(1, 9), 1)));
                                    } catch (KvFerryException e) {
                                        code = e.code();
                                    }
                                }
                            });
            engine.close();
            submitting.join(SOON.toMillis());
            assertThat(submitting.isAlive()).isFalse();
            for (var handle : handles) {
                assertThat(Optional.of(await(handle))).isPresent();
            }
        }
    }
}
