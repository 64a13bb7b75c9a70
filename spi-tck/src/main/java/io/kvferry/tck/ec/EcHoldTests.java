// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.tck.PluginCopy;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/// Holds, cache events and resets of [EcConnectorContract].
abstract class EcHoldTests extends EcItemTests {
    /// Two items of one request, on a producer of two ranks.
    private EcHarness makeTwo() {
        var producer = harness(KvRole.PRODUCER, shape().withRanks(2));
        var decision = make(producer, "both", item("first of two", 3), item("second of two", 5));
        if (!has(Feature.HOLD)) {
            assertThat(decision).isInstanceOf(FinishDecision.Release.class);
        }
        return producer;
    }

    private void load(EcHarness producer, EcHarness consumer, String hash, int rows) {
        assertThat(fetch(producer, consumer, item(hash, rows)))
                .isInstanceOf(Completion.Completed.class);
    }

    private static List<Completion.Result> ends(EcHarness harness, TransferId id) {
        return harness.ended().stream()
                .filter(end -> end.id().equals(id))
                .map(end -> end.result())
                .toList();
    }

    @Test
    @DisplayName(
            "E21 a hold covers all items of its request and is completed once, when the last is fetched; without HOLD nothing is held")
    void holdsEndWhenTheirItemsAreFetched() {
        var producer = makeTwo();
        if (!has(Feature.HOLD)) {
            producer.step(); // the harness refuses completions that nothing stands for
            assertThat(producer.openHolds()).isEmpty();
            return;
        }
        assertThat(producer.openHolds()).hasSize(1);
        var id = producer.openHolds().getFirst();
        assertThat(id.subject()).isEqualTo("both");
        var consumer = harness(KvRole.CONSUMER, shape().withRanks(2));
        load(producer, consumer, "first of two", 3);
        producer.step();
        assertThat(producer.openHolds()).as("with one item still to be fetched").hasSize(1);
        load(producer, consumer, "second of two", 5);
        producer.stepUntil("end of " + id, limit(), () -> producer.openHolds().isEmpty());
        producer.step();
        assertThat(ends(producer, id)).singleElement().isInstanceOf(Completion.Completed.class);
    }

    @Test
    @DisplayName("E22 a revoked hold is answered by every rank, once")
    void revokedHoldsAreAnswered() {
        var producer = makeTwo();
        if (!has(Feature.HOLD)) {
            assertThat(producer.openHolds()).isEmpty();
            return;
        }
        var id = producer.openHolds().getFirst();
        producer.expireHolds();
        producer.stepUntil("end of " + id, limit(), () -> producer.openHolds().isEmpty());
        for (int i = 0; i < 5; i++) {
            producer.step();
        }
        assertThat(ends(producer, id)).singleElement().isInstanceOf(Completion.Revoked.class);
    }

    @Test
    @DisplayName("E23 a request that is aborted, or has no items, is not held")
    void nothingIsHeldForNobody() {
        var producer = producer();
        producer.submit("aborted", List.of(item("of an aborted request", 2)), producerParams());
        assertThat(producer.finish("aborted", FinishReason.ABORT))
                .isInstanceOf(FinishDecision.Release.class);
        producer.step();
        assertThat(producer.openHolds()).isEmpty();
    }

    @Test
    @DisplayName(
            "E24 an item is announced before it can be hit, and withdrawn when it is gone; unclaimed events never come")
    void eventsTellWhatCanBeLoaded() {
        var producer = producer();
        var consumer = consumer();
        var item = item("announced", 3);
        make(producer, item);
        awaitHit(producer, consumer, item);
        producer.step();
        if (!has(Feature.EVENTS)) {
            assertThat(producer.events()).isEmpty();
            assertThat(consumer.events()).isEmpty();
            return;
        }
        assertThat(announced(producer)).contains("announced");
        assertThat(producer.events())
                .filteredOn(CacheEvent.ItemsStored.class::isInstance)
                .extracting(CacheEvent::source)
                .as("who announced the item, once each")
                .doesNotHaveDuplicates();
        if (has(Feature.RESET)) {
            assertThat(reset(producer)).isTrue();
            producer.step();
            producer.step();
            assertThat(announced(producer)).as("items still announced after a reset").isEmpty();
        }
    }

    /// Items that the events so far leave announced.
    private static Set<String> announced(EcHarness harness) {
        var items = new HashSet<String>();
        for (var event : harness.events()) {
            switch (event) {
                case CacheEvent.ItemsStored stored -> items.addAll(stored.items());
                case CacheEvent.ItemsRemoved removed -> items.removeAll(removed.items());
                case CacheEvent.Cleared _ -> items.clear();
                case CacheEvent.Stored _, CacheEvent.Removed _ -> {}
            }
        }
        return items;
    }

    private boolean reset(EcHarness producer) {
        return producer.scheduler()
                .resetCache(Deadline.in(limit()))
                .toCompletableFuture()
                .orTimeout(limit().toMillis(), TimeUnit.MILLISECONDS)
                .join();
    }

    @Test
    @DisplayName("E25 after a reset every item is a miss, and can be saved again")
    void resetMakesEverythingAMiss() {
        var producer = producer();
        if (!has(Feature.RESET)) {
            return;
        }
        var consumer = consumer();
        var item = item("reset", 3);
        make(producer, item);
        awaitHit(producer, consumer, item);
        assertThat(reset(producer)).isTrue();
        assertThat(consumer.lookupSettled(item, limit())).isInstanceOf(LookupResult.Miss.class);
        makeAgain(producer, item);
        assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
        assertThat(consumer.holds(item)).isTrue();
    }

    @Test
    @DisplayName("E26 the class loader of a closed connector can be collected")
    void classLoaderUnloads() {
        assumeTrue(standsAlone(), "the plugin needs classes of its host");
        PluginCopy.mustUnload(
                EcConnectorProvider.class,
                provider(),
                limit(),
                connector -> {
                    for (int i = 0; i < 2; i++) {
                        try (var harness =
                                EcHarness.open(
                                        connector,
                                        config(KvRole.BOTH, "unloaded"),
                                        shape(),
                                        host())) {
                            var item = item("unloaded", 3);
                            if (harness.lookupSettled(item, limit()) instanceof LookupResult.Hit) {
                                harness.awaitEnd(harness.load(item), limit());
                            }
                            make(harness, item("unloaded " + i, 3));
                            harness.step();
                        }
                    }
                });
    }
}
