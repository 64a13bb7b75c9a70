// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.testkit.AlteredModel;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.stream.IntStream;

/// The engine without connectors.
class EngineTest {

    static EngineConfig config(Map<String, Object> options) {
        return EngineConfig.of(new SyntheticProvider(), Path.of(""), options)
                .blockTokens(4)
                .blockCount(64);
    }

    static int[] prompt(int seed, int length) {
        var random = new Random(seed);
        return IntStream.range(0, length).map(_ -> 1 + random.nextInt(30_000)).toArray();
    }

    static GenerationRequest request(int[] prompt, int tokens) {
        return GenerationRequest.of(prompt, SamplingParams.greedy(tokens));
    }

    static Outcome.Finished run(Engine engine, GenerationRequest request) {
        var handle = engine.submit(request);
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (handle.await(Deadline.in(Duration.ZERO)).isEmpty() && !limit.passed()) {
            engine.step();
        }
        var outcome = handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome;
    }

    /// What an engine with room for everything generates.
    static int[] reference(int[] prompt, int tokens) {
        try (var engine = Engine.open(config(Map.of("verify", "all")).blockCount(4096))) {
            return run(engine, request(prompt, tokens)).tokens();
        }
    }

    /// A prefill may take many seconds, in which metrics and log are read too.
    @Test
    void countsARequestAsRunningWhileItsFirstStepIsComputed() {
        var seen = new ArrayList<Integer>();
        var open = new ArrayList<Engine>();
        var model =
                AlteredModel.withSteps((runner, batch, output, hooks) -> {
                    seen.add(open.getFirst().stats().running());
                    runner.execute(batch, output, hooks);
                });
        try (var engine = Engine.open(EngineConfig.of(model, Path.of(""), Map.of()))) {
            open.add(engine);
            run(engine, request(prompt(1, 20), 3));
            assertThat(seen).containsExactly(1, 1, 1);
            assertThat(engine.stats().running()).isZero();
        }
    }

    @Test
    void generatesTheSameTokensForTheSamePrompt() {
        try (var engine = Engine.open(config(Map.of("verify", "all")))) {
            var first = run(engine, request(prompt(1, 21), 10));
            var again = run(engine, request(prompt(1, 21), 10));
            var other = run(engine, request(prompt(2, 21), 10));

            assertThat(first.tokens())
                    .hasSize(10)
                    .isEqualTo(again.tokens())
                    .isNotEqualTo(other.tokens());
            assertThat(first.reason()).isEqualTo(FinishReason.LENGTH);
            assertThat(first.usage().localTokens()).isZero();
            assertThat(again.usage().localTokens()).isEqualTo(20);
            assertThat(again.usage().computedTokens()).isEqualTo(1);
        }
    }

    @Test
    void computesLongPromptsInChunks() {
        try (var engine = Engine.open(config(Map.of("verify", "all")).stepTokens(7))) {
            assertThat(run(engine, request(prompt(1, 50), 5)).tokens())
                    .isEqualTo(reference(prompt(1, 50), 5));
            assertThat(engine.stats().steps()).isGreaterThanOrEqualTo(8 + 4);
        }
    }

    @Test
    void keepsSaltsApart() {
        try (var engine = Engine.open(config(Map.of()))) {
            run(engine, request(prompt(1, 21), 1).withCacheSalt("a"));
            assertThat(
                            run(engine, request(prompt(1, 21), 1).withCacheSalt("b"))
                                    .usage()
                                    .localTokens())
                    .isZero();
            assertThat(
                            run(engine, request(prompt(1, 21), 1).withCacheSalt("a"))
                                    .usage()
                                    .localTokens())
                    .isEqualTo(20);
        }
    }

    @Test
    void preemptsAndStillGeneratesTheSameTokens() {
        try (var engine = Engine.open(config(Map.of("verify", "all")).blockCount(16))) {
            var handles =
                    IntStream.range(0, 5)
                            .mapToObj(i -> engine.submit(request(prompt(i, 10), 40)))
                            .toList();
            for (int i = 0; i < 2000; i++) {
                engine.step();
                engine.checkInvariants();
            }
            for (int i = 0; i < 5; i++) {
                var outcome =
                        (Outcome.Finished)
                                handles.get(i).await(Deadline.in(Duration.ZERO)).orElseThrow();
                assertThat(outcome.tokens()).isEqualTo(reference(prompt(i, 10), 40));
            }
            assertThat(engine.stats().counters().getOrDefault("preemptions", 0L)).isPositive();
            assertThat(engine.stats().freeBlocks()).isEqualTo(16);
        }
    }

    @Test
    void servesManyClientsFromManyThreads() throws InterruptedException {
        try (var engine = Engine.open(config(Map.of()).blockCount(256)).start()) {
            var outcomes = new ArrayList<Outcome>();
            var threads =
                    IntStream.range(0, 8)
                            .mapToObj(i ->
                                    Thread.ofVirtual()
                                            .start(() -> {
                                                for (int k = 0; k < 20; k++) {
                                                    var handle =
                                                            engine.submit(
                                                                    request(
                                                                            prompt(
                                                                                    i * 100 + k,
                                                                                    5 + k),
                                                                            8));
                                                    var outcome =
                                                            handle.await(soon()).orElseThrow();
                                                    synchronized (outcomes) {
                                                        outcomes.add(outcome);
                                                    }
                                                }
                                            }))
                            .toList();
            for (var thread : threads) {
                thread.join();
            }
            assertThat(outcomes).hasSize(160).allMatch(Outcome.Finished.class::isInstance);
            assertThat(engine.stats().counters().getOrDefault("requests_finished", 0L))
                    .isEqualTo(160);
        }
    }

    @Test
    void streamsTokensInOrder() {
        try (var engine = Engine.open(config(Map.of())).start()) {
            var handle = engine.submit(request(prompt(3, 9), 6));
            var tokens = new ArrayList<Integer>();
            RequestHandle.StreamEvent last = handle.next(soon()).orElseThrow();
            while (last instanceof RequestHandle.StreamEvent.Token(int index, int token, var _)) {
                assertThat(index).isEqualTo(tokens.size());
                tokens.add(token);
                last = handle.next(soon()).orElseThrow();
            }
            var outcome = ((RequestHandle.StreamEvent.Ended) last).outcome();
            assertThat(((Outcome.Finished) outcome).tokens())
                    .containsExactly(tokens.stream().mapToInt(Integer::intValue).toArray());
        }
    }

    @Test
    void stopsAtEndTokensAndStopStrings() {
        try (var engine = Engine.open(config(Map.of("vocab", 257, "eos_every", 3)))) {
            var free =
                    run(
                            engine,
                            GenerationRequest.of(
                                    prompt257(1), SamplingParams.greedy(50).withIgnoreEos(true)));
            var ended = run(engine, GenerationRequest.of(prompt257(1), SamplingParams.greedy(50)));
            assertThat(ended.reason()).isEqualTo(FinishReason.STOP);
            assertThat(free.tokens()).hasSize(50).startsWith(ended.tokens());
            assertThat(free.tokens()[ended.tokens().length]).isZero();

            var text = engine.tokenizer().decode(free.tokens());
            var stop = text.substring(12, 15);
            var stopped =
                    run(
                            engine,
                            GenerationRequest.of(
                                    prompt257(1),
                                    SamplingParams.greedy(50)
                                            .withIgnoreEos(true)
                                            .withStop(List.of(stop))));
            assertThat(stopped.reason()).isEqualTo(FinishReason.STOP);
            assertThat(engine.tokenizer().decode(stopped.tokens()))
                    .contains(stop)
                    .isEqualTo(
                            text.substring(
                                    0, engine.tokenizer().decode(stopped.tokens()).length()));
        }
    }

    private static int[] prompt257(int seed) {
        var random = new Random(seed);
        return IntStream.range(0, 9).map(_ -> 1 + random.nextInt(256)).toArray();
    }

    @Test
    void abortsAtAnyTime() {
        try (var engine = Engine.open(config(Map.of()))) {
            var early = engine.submit(request(prompt(1, 30), 20));
            early.abort();
            var running = engine.submit(request(prompt(2, 30), 20));
            engine.step();
            engine.step();
            running.abort();
            engine.step();

            assertThat(early.await(soon()).orElseThrow())
                    .isInstanceOfSatisfying(
                            Outcome.Finished.class,
                            end -> assertThat(end.reason()).isEqualTo(FinishReason.ABORT));
            assertThat(running.await(soon()).orElseThrow())
                    .isInstanceOfSatisfying(
                            Outcome.Finished.class, end -> assertThat(end.tokens()).isNotEmpty());
            running.abort();
            engine.step();
            assertThat(engine.stats().freeBlocks()).isEqualTo(64);
            engine.checkInvariants();
        }
    }

    @Test
    void refusesWhatCanNeverRun() {
        try (var engine = Engine.open(config(Map.of("context", 100)).maxQueued(1))) {
            assertCode(ErrorCode.INVALID_REQUEST, () -> engine.submit(request(prompt(1, 100), 1)));
            assertCode(ErrorCode.INVALID_REQUEST, () -> engine.submit(request(new int[] {-1}, 1)));
            engine.submit(request(prompt(1, 10), 1));
            assertCode(ErrorCode.BACKPRESSURE, () -> engine.submit(request(prompt(1, 10), 1)));
        }
        try (var engine = Engine.open(config(Map.of()).blockCount(4))) {
            assertCode(ErrorCode.INVALID_REQUEST, () -> engine.submit(request(prompt(1, 10), 10)));
            assertCode(
                    ErrorCode.INVALID_REQUEST,
                    () -> engine.submit(request(prompt(1, 10), Integer.MAX_VALUE)));
        }
        assertCode(ErrorCode.BAD_CONFIG, () -> Engine.open(config(Map.of("layres", 4))));
    }

    private static void assertCode(
            ErrorCode code, org.assertj.core.api.ThrowableAssert.ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void tellsWhatItsCacheHolds() {
        var events = new ArrayList<CacheEvent>();
        try (var engine = Engine.open(config(Map.of()).blockCount(8))) {
            engine.onCacheEvent(events::add);
            run(engine, request(prompt(1, 16), 1));
            run(engine, request(prompt(2, 28), 1));
            assertThat(engine.resetCaches(soon())).isTrue();
        }
        assertThat(events.getFirst())
                .isInstanceOfSatisfying(
                        CacheEvent.Stored.class,
                        stored -> {
                            assertThat(stored.blocks()).hasSize(4);
                            assertThat(stored.parent()).isEmpty();
                            assertThat(stored.blockTokens()).isEqualTo(4);
                            assertThat(stored.tokens()).isEqualTo(prompt(1, 16));
                        });
        assertThat(events).anyMatch(CacheEvent.Removed.class::isInstance);
        assertThat(events.getLast()).isEqualTo(new CacheEvent.Cleared("engine"));
    }

    @Test
    void aRouterCanFollowTheBlocksByTheirTokens() {
        var known = new HashMap<BlockHash, List<Integer>>(); // all tokens of the prefix
        try (var engine = Engine.open(config(Map.of()).blockCount(64))) {
            engine.onCacheEvent(event -> {
                if (event instanceof CacheEvent.Stored stored) {
                    var prefix =
                            new ArrayList<>(
                                    stored.parent()
                                            .map(parent ->
                                                    Objects.requireNonNull(known.get(parent)))
                                            .orElse(List.of()));
                    for (int block = 0; block < stored.blocks().size(); block++) {
                        for (int i = 0; i < stored.blockTokens(); i++) {
                            prefix.add(stored.tokens()[block * stored.blockTokens() + i]);
                        }
                        known.put(stored.blocks().get(block), List.copyOf(prefix));
                    }
                }
            });
            var first = run(engine, request(prompt(1, 18), 12));
            run(engine, request(prompt(2, 40), 3));
            var all = new ArrayList<Integer>();
            Arrays.stream(prompt(1, 18)).forEach(all::add);
            Arrays.stream(first.tokens()).forEach(all::add);
            assertThat(known.values())
                    .as("the generated tokens have blocks too")
                    .contains(all.subList(0, 28))
                    .contains(Arrays.stream(prompt(2, 40)).boxed().toList());
        }
    }

    @Test
    void runsSeveralRanksAndGroups() {
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all", "groups", 2)).worldSize(2).blockCount(64))) {
            assertThat(run(engine, request(prompt(1, 21), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 21), 10));
            assertThat(run(engine, request(prompt(1, 21), 10)).usage().localTokens()).isEqualTo(20);
        }
    }

    @Test
    void closesWhileBusyWithAnOutcomeForEverybody() {
        var engine =
                Engine.open(config(Map.of("step_time", "5ms")).closeLimit(Duration.ofMillis(50)))
                        .start();
        var handles =
                IntStream.range(0, 4)
                        .mapToObj(i -> engine.submit(request(prompt(i, 10), 50)))
                        .toList();
        engine.close();
        engine.close();
        assertThat(handles).allMatch(handle -> handle.await(soon()).isPresent());
        assertCode(ErrorCode.CLOSED, () -> engine.submit(request(prompt(1, 3), 1)));
    }

    /// One at a time, and the later it was submitted the more urgent it is.
    @Test
    void admitsInOrderOfPriority() {
        try (var engine = Engine.open(config(Map.of()).maxRunning(1))) {
            var handles =
                    IntStream.range(0, 4)
                            .mapToObj(i -> engine.submit(request(prompt(i, 9), 3).withPriority(-i)))
                            .toList();
            var ended = new ArrayList<Integer>();
            for (int i = 0; i < 1000 && ended.size() < 4; i++) {
                engine.step();
                for (int h = 0; h < 4; h++) {
                    if (!ended.contains(h)
                            && handles.get(h).await(Deadline.in(Duration.ZERO)).isPresent()) {
                        ended.add(h);
                    }
                }
            }
            assertThat(ended).containsExactly(3, 2, 1, 0);
        }
    }

    @Test
    void preemptsTheLeastUrgentRequest() {
        try (var engine = Engine.open(config(Map.of("verify", "all")).blockCount(16))) {
            var handles =
                    IntStream.range(0, 3)
                            .mapToObj(
                                    i -> engine.submit(request(prompt(i, 10), 40).withPriority(-i)))
                            .toList();
            for (int i = 0; i < 1000; i++) {
                engine.step();
            }
            var preemptions =
                    handles.stream()
                            .map(handle -> handle.await(Deadline.in(Duration.ZERO)).orElseThrow())
                            .map(outcome -> outcome.usage().preemptions())
                            .toList();
            assertThat(preemptions.getFirst()).isPositive();
            assertThat(preemptions.getLast()).isZero();
        }
    }

    /// From the call on: a constant would age while other tests run.
    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(30));
    }
}
