// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EncoderTest.encoding;
import static io.kvferry.engine.EncoderTest.item;
import static io.kvferry.engine.EncoderTest.outcome;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// The encoder cache is one slab per rank, registered once, with items in ranges of it; and what
/// the halves of an encoder-cache connector are told before the first request.
class EncoderMemoryTest {
    private static final int ROW = 16 * Short.BYTES;

    private final ScriptedEc ec = new ScriptedEc(new ConcurrentHashMap<>());

    private static GenerationRequest withItems(int seed, EncoderInput... items) {
        return request(prompt(seed, 60), 2).withItems(List.of(items));
    }

    private List<Long> offsets(int rank) {
        return Objects.requireNonNull(ec.outputs.get(rank)).stream()
                .map(output -> output.offset() / ROW)
                .toList();
    }

    @Test
    void everyItemIsARangeOfTheMemoryThatWasRegisteredOnce() {
        ec.store.put("loaded", EncoderTest.encoded("loaded", 7));
        try (var engine = Engine.open(encoding(40).worldSize(2).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10), item("loaded", 20, 7), item("b", 40, 5)));
            for (int rank = 0; rank < 2; rank++) {
                var memory = Objects.requireNonNull(ec.registered.get(rank));
                assertThat(memory.length()).isEqualTo(40 * ROW);
                assertThat(memory.hostSegment().address() % 4096).isZero();
                assertThat(ec.outputs.get(rank))
                        .hasSize(3)
                        .allSatisfy(output -> assertThat(output.memory()).isEqualTo(memory));
                assertThat(offsets(rank)).as("first rows").containsExactlyInAnyOrder(0L, 10L, 17L);
            }
        }
        assertThat(ec.calls.stream().filter("registerMemory"::equals)).hasSize(2);
    }

    /// Twenty of thirty rows are free after the two oldest items went, and the third stays.
    @Test
    void theOldestItemsGoUntilTheRestHasOneGapThatIsLargeEnough() {
        try (var engine = Engine.open(encoding(30).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10)));
            run(engine, withItems(2, item("b", 2, 10)));
            run(engine, withItems(3, item("c", 2, 10)));
            run(engine, withItems(4, item("a", 4, 10))); // so that b is the oldest
            run(engine, withItems(5, item("wide", 2, 20)));
            assertThat(ec.calls).contains("onFreed b", "onFreed c").doesNotContain("onFreed a");
            assertThat(offsets(0)).containsExactly(0L, 10L, 20L, 10L);
        }
    }

    @Test
    void rowsThatAreFreeButNotTogetherAreMadeFree() {
        try (var engine = Engine.open(encoding(30).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 5)));
            run(engine, withItems(2, item("b", 2, 10)));
            run(engine, withItems(3, item("c", 2, 5)));
            run(engine, withItems(4, item("d", 2, 14))); // 10 are free behind c: a and b go
            assertThat(ec.calls).contains("onFreed a", "onFreed b").doesNotContain("onFreed c");
            assertThat(offsets(0)).containsExactly(0L, 5L, 15L, 0L);
            assertThat(engine.stats().encoderFree()).isEqualTo(30);
        }
    }

    @Test
    void unequalItemsOfManyRequestsAllFindRoom() {
        try (var engine = Engine.open(encoding(24).worldSize(2).ecConnector(ec, ec.config()))) {
            for (int round = 0; round < 4; round++) {
                var handles = new ArrayList<RequestHandle>();
                for (int i = 0; i < 6; i++) {
                    int rows = 3 + 7 * i % 20;
                    handles.add(
                            engine.submit(
                                    withItems(
                                            i,
                                            item(round + " " + i, 2, rows),
                                            item("shared " + i % 2, 30, 11))));
                }
                for (var handle : handles) {
                    assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Finished.class);
                }
            }
            assertThat(engine.stats().encoderFree()).isEqualTo(24);
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L)).isZero();
            assertThat(offsets(0)).isEqualTo(offsets(1));
        }
    }

    /// Counts what is done to it.
    private record Given(Arena arena, MemoryRange.Host range, List<String> calls)
            implements ProvidedMemory {
        @Override
        public void close() {
            range.segment().set(ValueLayout.JAVA_BYTE, 0, (byte) 1);
            calls.add("close memory");
            arena.close();
        }
    }

    @Test
    void theConnectorMayProvideTheMemoryWhichTheEngineFreesLast() {
        var arena = Arena.ofShared();
        var given = new MemoryRange.Host(arena.allocate(40 * ROW, 4096));
        ec.more.add(Feature.PROVIDES_MEMORY);
        ec.memory = Optional.of(new Given(arena, given, ec.calls));
        try (var engine = Engine.open(encoding(40).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10)));
            assertThat(Objects.requireNonNull(ec.registered.get(0)).hostSegment().address())
                    .isEqualTo(given.segment().address());
        }
        assertThat(ec.calls)
                .containsSubsequence(
                        "provideMemory", "registerMemory", "close worker", "close memory");
        assertThat(ec.calls.stream().filter("close memory"::equals)).hasSize(1);
    }

    @Test
    void memoryThatIsTooSmallIsRefusedAndFreed() {
        var arena = Arena.ofShared();
        ec.more.add(Feature.PROVIDES_MEMORY);
        ec.memory =
                Optional.of(
                        new Given(arena, new MemoryRange.Host(arena.allocate(64, 4096)), ec.calls));
        assertThatThrownBy(() -> Engine.open(encoding(40).ecConnector(ec, ec.config())).close())
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("64 bytes");
        assertThat(ec.calls).contains("close memory");
    }

    @Test
    void handshakesArePassedOnceTheMemoryIsRegistered() {
        ec.more.add(Feature.HANDSHAKE);
        try (var engine = Engine.open(encoding(40).worldSize(2).ecConnector(ec, ec.config()))) {
            assertThat(ec.handshakes.stream().map(one -> one.reader().i32())).containsExactly(0, 1);
            assertThat(ec.calls)
                    .containsSubsequence(
                            "registerMemory",
                            "registerMemory",
                            "handshake",
                            "handshake",
                            "onHandshakes")
                    .satisfies(calls ->
                            assertThat(calls.stream().filter("handshake"::equals)).hasSize(2));
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    /// As for KV: work that is due later is no step now, a wake is one, work that is due is.
    @Test
    void theSchedulerHalfIsSteppedWhenItAsksForIt() {
        ec.work = Optional.of(Deadline.in(Duration.ofMinutes(10)));
        try (var engine = Engine.open(encoding(40).ecConnector(ec, ec.config())).start()) {
            ec.wake.run();
            awaitSteps(1);
            ec.work = Optional.of(Deadline.in(Duration.ZERO));
            ec.wake.run();
            awaitSteps(10);
            ec.work = Optional.of(Deadline.in(Duration.ofMillis(20)));
            long before = steps();
            ec.wake.run();
            awaitSteps(before + 3); // woken by nobody once the 20 ms are over
            ec.work = Optional.empty();
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L)).isZero();
        }
    }

    private long steps() {
        return ec.calls.stream().filter("buildPlan"::equals).count();
    }

    private void awaitSteps(long count) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (steps() < count) {
            assertThat(limit.passed()).as("no step").isFalse();
            Thread.onSpinWait();
        }
    }

    @Test
    void bothHalvesOfBothFamiliesSeeTheDataParallelRank() {
        var kv = new ScriptedKv();
        var seen = new AtomicLong(-1);
        kv.onOpenWorker = context -> seen.set(context.engine().dataParallelRank());
        try (var engine =
                Engine.open(
                        encoding(40)
                                .dataParallelRank(3)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL))
                                .ecConnector(ec, ec.config()))) {
            assertThat(ec.engines)
                    .hasSize(2)
                    .allSatisfy(info -> assertThat(info.dataParallelRank()).isEqualTo(3));
            assertThat(seen).hasValue(3);
            assertThat(engine.stats().health()).isEmpty();
        }
        assertThatThrownBy(() -> Engine.open(encoding(40).dataParallelRank(-1)).close())
                .isInstanceOf(KvFerryException.class);
    }
}
