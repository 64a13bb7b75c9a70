// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.Halves;
import io.kvferry.tck.PluginChecks;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.locks.LockSupport;

/// Items of [EcConnectorContract]: saved, found, loaded, damaged, gone.
abstract class EcItemTests extends EcContractSupport {
    private static final List<String> HOSTILE_HASHES =
            List.of(
                    "../../escape",
                    "/etc/passwd",
                    "C:\\x",
                    "a\0b",
                    "con",
                    "x".repeat(300),
                    "mit Umlaut äöü",
                    "%2e%2e/",
                    "a:b|c?d*e",
                    " ",
                    ".",
                    "line\nbreak");

    @Test
    @DisplayName("E17 an item that nobody saved is a miss")
    void missesWhatNobodySaved() {
        var consumer = consumer();
        assertThat(consumer.lookupSettled(item("unknown", 4), limit()))
                .isInstanceOf(LookupResult.Miss.class);
    }

    @Test
    @DisplayName("E2 saved items are loaded with the same bytes, and each plan is sent once")
    void savedItemsAreLoaded() {
        var producer = producer();
        var consumer = consumer();
        var items = new EcItem[] {item("one", 3), item("two", 17), item("three", 1)};
        make(producer, items);
        for (var item : items) {
            assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
            assertThat(consumer.holds(item)).isTrue();
        }
        consumer.step();
        assertThat(consumer.lastPlan())
                .as("the plan when there is nothing to say")
                .isEqualTo(Payload.EMPTY);
        assertThat(consumer.ended()).hasSize(items.length);
        assertThat(consumer.unpublished()).isEmpty();
    }

    @Test
    @DisplayName("E3 every element type survives")
    void everyElementTypeSurvives() {
        for (var dtype : List.of(DType.FLOAT32, DType.BFLOAT16, DType.FP8_E4M3, DType.INT32)) {
            var producer = harness(KvRole.PRODUCER, shape().withDType(dtype));
            var consumer = harness(KvRole.CONSUMER, shape().withDType(dtype));
            var item = item("typed " + dtype, 5, dtype);
            make(producer, item);
            assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
            assertThat(consumer.holds(item)).isTrue();
        }
    }

    @Test
    @DisplayName("E10 a consumer saves nothing, a producer loads nothing")
    void rolesAreKept() {
        var consumer = consumer();
        var item = item("role", 4);
        make(consumer, item);
        for (int i = 0; i < 5; i++) {
            consumer.step();
        }
        assertThat(consumer().lookupSettled(item, limit())).isInstanceOf(LookupResult.Miss.class);
        var producer = producer();
        make(producer, item);
        awaitHit(producer, consumer(), item);
        assertThat(producer.lookupSettled(item, limit())).isInstanceOf(LookupResult.Miss.class);
        var both = harness(KvRole.BOTH, shape());
        assertThat(fetch(producer, both, item)).isInstanceOf(Completion.Completed.class);
    }

    @Test
    @DisplayName("E11 a load does not overwrite what the cache has")
    void loadsDoNotOverwrite() {
        var producer = producer();
        var consumer = consumer();
        var item = item("there already", 4);
        make(producer, item);
        awaitHit(producer, consumer, item);
        consumer.plant(item, (byte) 0x11);
        var end = consumer.awaitEnd(consumer.load(item), limit());
        assertThat(end.result()).isInstanceOf(Completion.Completed.class);
        assertThat(consumer.firstByte(item)).contains((byte) 0x11);
    }

    @Test
    @DisplayName(
            "E61 a damaged item is a failed load: nothing gets into the cache, no room stays taken")
    void damagedItemsAreNoticed() {
        var producer = producer();
        var consumer = consumer();
        var item = item("damaged", 40);
        make(producer, item);
        awaitHit(producer, consumer, item);
        assumeTrue(damageStore(), "nothing at rest can be damaged: override damageStore()");
        if (consumer.lookupSettled(item, limit()) instanceof LookupResult.Hit) {
            var end = consumer.awaitEnd(consumer.load(item), limit());
            assertThat(end.result()).isInstanceOf(Completion.Failed.class);
        }
        assertThat(consumer.holds(item)).isFalse();
        assertThat(consumer.unpublished()).isEmpty();
        makeAgain(producer, item);
        var fresh = consumer();
        assertThat(fetch(producer, fresh, item)).isInstanceOf(Completion.Completed.class);
        assertThat(fresh.holds(item)).isTrue();
    }

    @Test
    @DisplayName("E5 a source that stops is a failed load or a miss, never an exception")
    void stoppedSourcesFailLoads() {
        var producer = producer();
        var consumer = consumer();
        var item = item("unreachable", 4);
        make(producer, item);
        awaitHit(producer, consumer, item);
        assumeTrue(stopStore(), "the source cannot be stopped: override stopStore()");
        var end = consumer.awaitEnd(consumer.load(item), limit());
        assertThat(end.result()).isInstanceOf(Completion.Failed.class);
        assertThat(consumer.holds(item)).isFalse();
        assertThat(consumer.unpublished()).isEmpty();
        make(producer, item("save without a store", 3));
        assertThat(consumer.lookupSettled(item, limit())).isInstanceOf(LookupResult.Miss.class);
    }

    @Test
    @DisplayName("E12 closing with loads in flight is safe, idempotent, and leaves nothing behind")
    void closingIsSafe() {
        var producer = producer();
        var consumer = consumer();
        for (int i = 0; i < 20; i++) {
            make(producer, item("closing " + i, 64));
        }
        for (int i = 0; i < 20; i++) {
            var item = item("closing " + i, 64);
            awaitHit(producer, consumer, item);
            consumer.load(item);
        }
        consumer.step();
        consumer.close();
        consumer.close();
        producer.close();
    }

    @Test
    @DisplayName(
            "E12b a worker half that says TIMEOUT in close() is closed when it is asked again; once that has returned, no thread of it touches the cache")
    void closingIsOverWhenItReturns() {
        var producer = producer();
        var consumer = consumer();
        for (int i = 0; i < 20; i++) {
            var item = item("closed " + i, 64);
            make(producer, item);
            awaitHit(producer, consumer, item);
            consumer.load(item);
        }
        consumer.step(); // asynchronous loads may be under way
        for (var worker : consumer.workers()) {
            long end = System.nanoTime() + limit().toNanos();
            while (!Halves.isClosed(worker)) {
                assertThat(System.nanoTime()).as("close() never returns").isLessThan(end);
                LockSupport.parkNanos(1_000_000);
            }
        }
        consumer.mustBeUntouched();
        consumer.dropAll();
        LockSupport.parkNanos(100_000_000); // a busy machine may keep a thread waiting
        consumer.mustBeUntouched();
    }

    @Test
    @DisplayName("E13 every rank gets the item, and it counts as loaded when the last one has it")
    void everyRankGetsTheItem() {
        var producer = harness(KvRole.PRODUCER, shape().withRanks(2));
        var consumer = harness(KvRole.CONSUMER, shape().withRanks(2));
        var item = item("on all ranks", 6);
        make(producer, item);
        assertThat(fetch(producer, consumer, item)).isInstanceOf(Completion.Completed.class);
        assertThat(consumer.holds(item)).isTrue();
    }

    @Test
    @DisplayName(
            "E14 a revoked load is answered once, and what was revoked before its plan is never loaded")
    void revokedLoadsAreAnswered() {
        var producer = producer();
        var consumer = consumer();
        var early = item("revoked early", 4);
        var late = item("revoked late", 4);
        make(producer, early, late);
        awaitHit(producer, consumer, early);
        awaitHit(producer, consumer, late);
        var first = consumer.load(early);
        consumer.revoke(first);
        assertThat(consumer.awaitEnd(first, limit()).result())
                .isInstanceOf(Completion.Revoked.class);
        assertThat(consumer.holds(early)).isFalse();
        var second = consumer.load(late);
        consumer.step();
        if (consumer.ended().stream().noneMatch(end -> end.id().equals(second))) {
            consumer.revoke(second);
        }
        consumer.awaitEnd(second, limit());
        for (int i = 0; i < 5; i++) {
            consumer.step();
        }
        assertThat(consumer.unpublished()).isEmpty();
    }

    @Test
    @DisplayName("E16 the same hash under another model, or with another shape, is another item")
    void modelsAndShapesAreKeptApart() {
        var producer = producer();
        var item = item("scoped", 4);
        make(producer, item);
        awaitHit(producer, consumer(), item);
        var stranger = harness(KvRole.CONSUMER, shape().withModel("another-model"));
        assertThat(stranger.lookupSettled(item, limit())).isInstanceOf(LookupResult.Miss.class);
        var consumer = consumer();
        var wider = new EcItem("r", 0, "scoped", "image", 9, 24, DType.FLOAT32);
        if (consumer.lookupSettled(wider, limit()) instanceof LookupResult.Hit) {
            var end = consumer.awaitEnd(consumer.load(wider), limit());
            assertThat(end.result()).isInstanceOf(Completion.Failed.class);
            assertThat(consumer.unpublished()).isEmpty();
        }
    }

    @Test
    @DisplayName("E19 hashes chosen by users are neither paths nor formats")
    void hostileHashesAreJustNames() {
        var producer = producer();
        var consumer = consumer();
        for (var hash : HOSTILE_HASHES) {
            var item = item(hash, 2);
            make(producer, item);
            assertThat(fetch(producer, consumer, item))
                    .as(hash)
                    .isInstanceOf(Completion.Completed.class);
            assertThat(consumer.holds(item)).as(hash).isTrue();
        }
    }

    @Test
    @DisplayName(
            "E9 an item encoded twice at once is saved once or twice and is right, and every hold on it ends")
    void itemsEncodedTwiceAreRight() {
        var one = producer();
        var other = producer();
        var item = item("twice", 8);
        var both = List.of(one, other);
        both.forEach(producer -> {
            var own = requested("of each", item);
            producer.submit("of each", List.of(own), producerParams());
            producer.encode(own);
        });
        both.forEach(EcHarness::step);
        both.forEach(producer -> producer.finish("of each", FinishReason.LENGTH));
        var consumer = consumer();
        assertThat(fetch(one, consumer, item)).isInstanceOf(Completion.Completed.class);
        assertThat(consumer.holds(item)).isTrue();
        both.forEach(producer -> {
            producer.expireHolds();
            producer.stepUntil("end of holds", limit(), () -> producer.openHolds().isEmpty());
        });
    }

    @Test
    @DisplayName("E1 what the connector can do is known without opening it")
    void capabilitiesAreStatic() {
        var provider = provider();
        assertThat(provider.name()).isNotBlank();
        assertThat(provider.spiVersions().accepts(SpiVersion.CURRENT)).isTrue();
        PluginChecks.diagnoses(provider);
        var claimed = provider.capabilities(config(KvRole.BOTH, "static"), host());
        assertThat(claimed).isEqualTo(provider.capabilities(config(KvRole.BOTH, "static"), host()));
        assertThat(claimed.has(Feature.SYNC_LOAD) || claimed.has(Feature.ASYNC_LOAD)).isTrue();
    }
}
