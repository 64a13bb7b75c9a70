// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.tck.Patience;
import io.kvferry.tck.faults.CallLog;
import io.kvferry.tck.faults.CutHandshakes;
import io.kvferry.tck.faults.Recording;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;

/// The encoder cache's memory, the order of calls, and many items at once, of
/// [EcConnectorContract].
abstract class EcMemoryTests extends EcHoldTests {
    private static final int MANY = 48;

    @Test
    @DisplayName("E4 a request without items is fine, and of several items each is answered for")
    void everyItemOfARequestIsAnsweredFor() {
        var producer = producer();
        var consumer = consumer();
        var known = item("known", 3);
        var other = item("known too", 5);
        make(producer, known, other);
        awaitHit(producer, consumer, known);
        awaitHit(producer, consumer, other);
        consumer.submit("none", List.of(), TransferParams.EMPTY);
        var mixed = List.of(known, item("unknown", 4), other);
        consumer.submit("mixed", mixed, TransferParams.EMPTY);
        assertThat(mixed.stream().map(item -> consumer.lookupSettled(item, limit())))
                .extracting(LookupResult.Hit.class::isInstance)
                .containsExactly(true, false, true);
        consumer.step();
        for (var id : List.of("none", "mixed")) {
            assertThat(consumer.finish(id, FinishReason.STOP))
                    .isInstanceOf(FinishDecision.Release.class);
        }
        consumer.step();
    }

    @Test
    @DisplayName("E6 a load writes into the room that it was given, and nowhere else")
    void loadsStayInTheirRoom() {
        var producer = producer();
        var consumer = consumer();
        var items = new EcItem[] {item("left", 3), item("middle", 7), item("right", 1)};
        make(producer, items);
        var loads = new ArrayList<TransferId>();
        for (var item : items) {
            awaitHit(producer, consumer, item);
            loads.add(consumer.load(item)); // in ranges side by side
        }
        loads.forEach(load ->
                assertThat(consumer.awaitEnd(load, limit()).result())
                        .isInstanceOf(Completion.Completed.class));
        for (var item : items) {
            assertThat(consumer.holds(item)).isTrue();
        }
        consumer.close(); // nothing may be written after this, and the harness looks once more
    }

    @Test
    @DisplayName("E7 many items at once are all saved and all loaded: none is pushed out under way")
    void manyItemsAtOnceAreAllServed() {
        var producer = producer();
        var consumer = consumer();
        var items = new EcItem[MANY];
        for (int i = 0; i < MANY; i++) {
            items[i] = item("one of many " + i, 1 + i % 16);
        }
        make(producer, "many", items);
        var loads = new ArrayList<TransferId>();
        for (var item : items) {
            awaitHit(producer, consumer, item);
        }
        for (var item : items) {
            loads.add(consumer.load(item));
        }
        for (int i = 0; i < MANY; i++) {
            assertThat(consumer.awaitEnd(loads.get(i), limit()).result())
                    .as("load of %s", items[i])
                    .isInstanceOf(Completion.Completed.class);
            assertThat(consumer.holds(items[i])).as("%s in the cache", items[i]).isTrue();
        }
        assertThat(consumer.ended()).hasSize(MANY);
    }

    @Test
    @DisplayName(
            "E8 a save that cannot be done holds no step up, and its item is neither announced nor found")
    void savesThatFailAreNoItems() {
        var producer = producer();
        var consumer = consumer();
        make(producer, item("before", 3));
        awaitHit(producer, consumer, item("before", 3));
        producer.step();
        assumeTrue(stopStore(), "the source cannot be stopped: override stopStore()");
        int announced = producer.events().size();
        long begin = System.nanoTime();
        make(producer, item("unsaved", 3));
        assertThat(System.nanoTime() - begin)
                .as("a step with a save that fails")
                .isLessThan(Patience.STEP_LIMIT.toNanos());
        for (int i = 0; i < 5; i++) {
            producer.step();
        }
        assertThat(producer.events().subList(announced, producer.events().size()))
                .filteredOn(CacheEvent.ItemsStored.class::isInstance)
                .isEmpty();
        assertThat(consumer.lookupSettled(item("unsaved", 3), limit()))
                .isInstanceOf(LookupResult.Miss.class);
    }

    @Test
    @DisplayName("E15 an item that the engine's cache dropped is found and loaded again")
    void droppedItemsAreLoadedAgain() {
        var producer = producer();
        var consumer = consumer();
        var item = item("dropped", 6);
        make(producer, item);
        for (int i = 0; i < 3; i++) {
            assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
            assertThat(consumer.holds(item)).as("after load %d", i).isTrue();
            consumer.free(item);
            assertThat(consumer.holds(item)).isFalse();
        }
    }

    @Test
    @DisplayName("E62 the halves are opened, registered and closed in the documented order")
    void callsComeInTheDocumentedOrder() {
        var log = new CallLog();
        try (var harness =
                EcHarness.open(
                        Recording.ec(provider(), log),
                        config(KvRole.BOTH, "recorded"),
                        shape().withRanks(2),
                        host())) {
            make(harness, item("recorded", 3));
            harness.step();
        }
        for (var worker : List.of("worker 0", "worker 1")) {
            var calls = log.methods(worker);
            assertThat(calls)
                    .startsWith(has(Feature.PROVIDES_MEMORY) ? "provideMemory" : "registerMemory")
                    .containsSubsequence("registerMemory", "beginStep", "save", "endStep", "report")
                    .containsOnlyOnce("registerMemory")
                    .endsWith("close");
        }
        assertThat(
                        log.methods("scheduler").stream()
                                .map(call -> call.equals("settle") ? "onReport" : call))
                .containsSubsequence(
                        "onRequest", "onAllocated", "buildPlan", "onReport", "finish", "close");
    }

    @Test
    @DisplayName("E63 a connector with nothing to do asks for no step")
    void idleConnectorsAskForNoStep() {
        var producer = producer();
        var consumer = consumer();
        var item = item("once", 3);
        make(producer, item);
        assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
        producer.expireHolds();
        for (var harness : List.of(producer, consumer)) {
            harness.stepUntil(
                    "pendingWork() that is not due",
                    limit(),
                    () -> harness.openHolds().isEmpty() && !harness.needsAStep());
        }
    }

    @Test
    @DisplayName(
            "E64 memory that a connector provides for the cache is zeroed whole pages, and stays until the engine frees it")
    void providedMemoryOutlivesTheHalves() {
        if (!has(Feature.PROVIDES_MEMORY)) {
            return; // then the engine never asks
        }
        var producer = harness(KvRole.PRODUCER, shape().withRanks(2));
        var consumer = harness(KvRole.CONSUMER, shape().withRanks(2));
        var item = item("in provided memory", 5);
        make(producer, item);
        assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
        assertThat(consumer.holds(item)).isTrue();
        // Each harness writes to all of its memory between the end of the halves and its own.
        producer.close();
        consumer.close();
    }

    @Test
    @DisplayName(
            "E65 handshakes are exchanged where they are claimed, and damaged ones are refused")
    void handshakesAreExchangedWhereClaimed() {
        var harness = harness(KvRole.BOTH, shape().withRanks(2));
        if (!has(Feature.HANDSHAKE)) {
            assertThat(harness.workers())
                    .allSatisfy(worker -> assertThat(worker.handshake().isEmpty()).isTrue());
            return;
        }
        for (int part = 1; part <= 3; part++) {
            var damaged = CutHandshakes.wrap(provider(), part);
            assertThatThrownBy(() ->
                            EcHarness.open(
                                    damaged,
                                    config(KvRole.BOTH, "greeted"),
                                    shape().withRanks(2),
                                    host()))
                    .as("handshakes cut to %s quarters", part)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e ->
                                    assertThat(e.code())
                                            .isIn(
                                                    ErrorCode.PROTOCOL,
                                                    ErrorCode.INCOMPATIBLE,
                                                    ErrorCode.CORRUPT));
        }
    }
}
