// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle.StreamEvent;
import io.kvferry.engine.Usage;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/// How tokens and outcomes reach those who wait for them. The test's thread is the scheduler
/// thread.
class ReaderWakerTest {
    private static final Duration SOON = Duration.ofSeconds(60);

    private final ReaderWaker waker = new ReaderWaker();

    @AfterEach
    void closeWaker() {
        assertThatCode(() -> waker.stepEnded(true)).doesNotThrowAnyException();
        waker.close();
    }

    private Generation generation(String id) {
        return new Generation(id, new TokenSequence(new int[] {1, 2, 3}), waker, _ -> {}, _ -> {});
    }

    private static Outcome outcome(Generation generation) {
        return new Outcome.Finished(
                FinishReason.LENGTH,
                generation.tokens(),
                TransferParams.EMPTY,
                TransferParams.EMPTY,
                new Usage(3, generation.tokens().length, 0, List.of(), 3, 0));
    }

    /// Reads until the end, in a thread of its own.
    private static final class Reader {
        private final Generation generation;
        private final List<StreamEvent> events = new CopyOnWriteArrayList<>();
        private final Thread thread;

        Reader(Generation generation) {
            this.generation = generation;
            this.thread = Thread.ofPlatform().daemon().start(this::read);
        }

        private void read() {
            do {
                var next = generation.next(Deadline.in(SOON));
                if (next.isEmpty()) {
                    return;
                }
                events.add(next.get());
            } while (!(events.getLast() instanceof StreamEvent.Ended));
        }

        /// All that it has read; it ends by itself.
        List<StreamEvent> all() throws InterruptedException {
            thread.join(2 * SOON.toMillis());
            assertThat(thread.isAlive()).isFalse();
            return events;
        }
    }

    private static Reader reader(Generation generation) {
        return new Reader(generation);
    }

    private static void awaitUntil(BooleanSupplier done) {
        var limit = Deadline.in(SOON);
        while (!done.getAsBoolean()) {
            assertThat(limit.passed()).as("waited in vain").isFalse();
            Thread.onSpinWait();
        }
    }

    private static void assertComplete(List<StreamEvent> events, int tokens, int seed) {
        assertThat(events).hasSize(tokens + 1);
        for (int i = 0; i < tokens; i++) {
            var token = (StreamEvent.Token) events.get(i);
            assertThat(token.index()).isEqualTo(i);
            assertThat(token.token()).isEqualTo(seed + i);
        }
        assertThat(events.getLast()).isInstanceOf(StreamEvent.Ended.class);
    }

    @Test
    void manyReadersGetTheirTokensInOrderAndThenTheEnd() throws Exception {
        int tokens = 400;
        var generations = new ArrayList<Generation>();
        var readers = new ArrayList<Reader>();
        for (int i = 0; i < 100; i++) {
            generations.add(generation("r" + i));
            readers.add(reader(generations.get(i)));
        }
        for (int step = 0; step < tokens; step++) {
            for (int i = 0; i < generations.size(); i++) {
                if (step < tokens - i) { // some end before others
                    generations.get(i).sequence().append(1000 * i + step);
                    if (step == tokens - i - 1) {
                        generations.get(i).end(outcome(generations.get(i)));
                    }
                }
            }
            waker.stepEnded(true);
        }
        for (int i = 0; i < readers.size(); i++) {
            assertComplete(readers.get(i).all(), tokens - i, 1000 * i);
        }
    }

    /// Each token comes while the reader waits for it: a lost wake-up would last until the limit.
    @Test
    void aReaderThatWaitsIsWokenForEachToken() throws Exception {
        var generation = generation("a");
        var reader = reader(generation);
        for (int i = 0; i < 2_000; i++) {
            awaitUntil(() -> waker.listed() == 1);
            generation.sequence().append(i);
            waker.stepEnded(true);
            int read = i + 1;
            awaitUntil(() -> reader.events.size() == read);
        }
        generation.end(outcome(generation));
        assertComplete(reader.all(), 2_000, 0);
    }

    @Test
    void anErrorReachesAReaderThatWaits() throws Exception {
        var generation = generation("a");
        var reader = reader(generation);
        awaitUntil(() -> waker.listed() == 1);
        var failure = new Failure(ErrorCode.IO, "scripted");
        generation.end(new Outcome.Failed(failure, new Usage(3, 0, 0, List.of(), 3, 0)));
        assertThat(reader.all())
                .singleElement()
                .isInstanceOfSatisfying(
                        StreamEvent.Ended.class,
                        ended -> assertThat(ended.outcome()).isInstanceOf(Outcome.Failed.class));
    }

    /// One that has given up is not kept, and does not keep another from being woken.
    @Test
    void aReaderThatGoesAwayIsForgotten() throws Exception {
        var left = generation("left");
        var stays = generation("stays");
        for (int i = 0; i < 50; i++) { // listed once, however often it comes
            assertThat(left.next(Deadline.in(Duration.ofMillis(1)))).isEmpty();
        }
        assertThat(waker.listed()).isEqualTo(1);
        var reader = reader(stays);
        awaitUntil(() -> waker.listed() == 2);
        stays.sequence().append(7);
        waker.stepEnded(true);
        awaitUntil(() -> reader.events.size() == 1);
        stays.end(outcome(stays));
        waker.stepEnded(true);
        assertComplete(reader.all(), 1, 7);
        awaitUntil(() -> {
            waker.stepEnded(true);
            return waker.listed() == 0;
        });
        left.sequence().append(8);
        assertThat(left.next(Deadline.in(Duration.ZERO)))
                .hasValueSatisfying(
                        event -> assertThat(((StreamEvent.Token) event).token()).isEqualTo(8));
    }

    /// Two read the same request: one gives up, the other is still woken.
    @Test
    void aReaderIsWokenThoughAnotherOfItsRequestHasGivenUp() throws Exception {
        var generation = generation("a");
        var reader = reader(generation);
        awaitUntil(() -> waker.listed() == 1);
        assertThat(generation.next(Deadline.in(Duration.ofMillis(1)))).isEmpty();
        generation.sequence().append(5);
        waker.stepEnded(true);
        awaitUntil(() -> reader.events.size() == 1);
        generation.end(outcome(generation));
        assertComplete(reader.all(), 1, 5);
    }

    /// Tokens wait for a reader that does not come, and cost the scheduler thread nothing.
    @Test
    void aSlowReaderFindsAllThatCameMeanwhile() {
        var generation = generation("a");
        for (int i = 0; i < 10_000; i++) {
            if (i % 2 == 0) {
                generation.logprobs(new TokenLogprobs(-i, new int[0], new float[0]));
            }
            generation.sequence().append(i);
            waker.stepEnded(true);
        }
        generation.end(outcome(generation));
        for (int i = 0; i < 10_000; i++) {
            var token =
                    (StreamEvent.Token) generation.next(Deadline.in(Duration.ZERO)).orElseThrow();
            assertThat(token.token()).isEqualTo(i);
            assertThat(token.logprobs().map(TokenLogprobs::chosen))
                    .isEqualTo(i % 2 == 0 ? Optional.of((float) -i) : Optional.empty());
        }
        assertThat(generation.next(Deadline.in(Duration.ZERO)))
                .hasValueSatisfying(
                        event -> assertThat(event).isInstanceOf(StreamEvent.Ended.class));
    }

    /// Throws so many times when it is asked.
    private static final class Broken implements ReaderWaker.Readers {
        private final AtomicInteger left;
        private volatile boolean woken;

        Broken(int times) {
            left = new AtomicInteger(times);
        }

        @Override
        public boolean haveNews() {
            if (left.getAndDecrement() > 0) {
                throw new StackOverflowError("scripted");
            }
            return true;
        }

        @Override
        public void wake() {
            woken = true;
        }
    }

    @Test
    void anErrorThatPassesKeepsNobodyFromBeingWoken() throws Exception {
        var generation = generation("a");
        var reader = reader(generation);
        awaitUntil(() -> waker.listed() == 1);
        var broken = new Broken(2);
        waker.add(broken);
        generation.sequence().append(3);
        waker.stepEnded(true);
        awaitUntil(() -> broken.woken && reader.events.size() == 1);
        generation.end(outcome(generation));
        assertComplete(reader.all(), 1, 3);
    }

    /// A request that waits for its load has steps, and its reader sleeps through them.
    @Test
    void aStepWithoutTokensWakesNobody() throws Exception {
        var generation = generation("a");
        var reader = reader(generation);
        awaitUntil(() -> waker.listed() == 1);
        var asked = new Broken(0);
        waker.add(asked);
        for (int i = 0; i < 1_000; i++) {
            waker.stepEnded(false);
            Thread.yield();
        }
        assertThat(asked.woken).isFalse();
        generation.sequence().append(3);
        waker.stepEnded(true);
        awaitUntil(() -> asked.woken);
        generation.end(outcome(generation));
        assertComplete(reader.all(), 1, 3);
    }

    /// Nobody would be woken any more.
    @Test
    void anErrorThatStaysEndsTheEngine() {
        var settings = EngineConfig.of(new SyntheticProvider(), Path.of(""), Map.of());
        try (var engine = Engine.open(settings.blockTokens(4).blockCount(64))) {
            var request = GenerationRequest.of(new int[] {1, 2, 3}, SamplingParams.greedy(100));
            var handle = (Generation) engine.submit(request);
            handle.waker.add(new Broken(Integer.MAX_VALUE));
            awaitUntil(() -> {
                engine.step();
                return !engine.stats().health().isEmpty();
            });
            assertThat(engine.stats().health())
                    .contains("INTERNAL")
                    .contains("the thread that wakes readers failed")
                    .contains("scripted");
            assertThat(handle.await(Deadline.in(Duration.ZERO))).isPresent();
        }
    }
}
