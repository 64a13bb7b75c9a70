// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.tck.Halves;
import io.kvferry.tck.PluginCopy;
import io.kvferry.tck.harness.ConnectorHarness;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.locks.LockSupport;

/// Group G of [KvConnectorContract], closing.
abstract class KvCloseTests extends KvLifecycleTests {
    @Test
    @DisplayName(
            "G46a closing with transfers in flight ends them; closing twice is harmless; nothing stays behind")
    void closingEndsEverything() {
        var pair = pair();
        var tokens = prompt(46, 8, 1);
        var params = pair.make(tokens);
        if (loads()) {
            var request = pair.want(tokens, params);
            pair.consumer.allocate(request, 0, pair.awaitHit(request, 0));
            pair.consumer.step();
        }
        var saving = pair.producer.submit("saving", prompt(461, 6, 1));
        pair.producer.allocate(saving, 0, LookupResult.MISS);
        pair.producer.schedule(saving, 100);
        pair.producer.step();
        for (var harness : List.of(pair.consumer, pair.producer)) {
            harness.closeHalves();
            harness.closeHalves();
            harness.scribble();
        }
        LockSupport.parkNanos(30_000_000);
        for (var harness : List.of(pair.consumer, pair.producer)) {
            assertThat(harness.changedSinceScribble()).as("writes after close").isEmpty();
        }
        // Threads, files and ports are checked after each test.
    }

    @Test
    @DisplayName(
            "G46c a worker half that says TIMEOUT in close() is closed when it is asked again; once that has returned, no thread of it touches the cache")
    void closingIsOverWhenItReturns() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(463, 8, 1);
        var request = pair.want(tokens, pair.make(tokens));
        pair.consumer.allocate(request, 0, pair.awaitHit(request, 0));
        pair.consumer.step(); // an asynchronous load may be under way
        var worker = pair.consumer.workers().getFirst();
        long end = System.nanoTime() + limit().toNanos();
        while (!Halves.isClosed(worker)) {
            assertThat(System.nanoTime()).as("close() never returns").isLessThan(end);
            LockSupport.parkNanos(1_000_000);
        }
        pair.consumer.scribble();
        LockSupport.parkNanos(100_000_000); // a busy machine may keep a thread waiting
        assertThat(pair.consumer.changedSinceScribble()).as("writes after close").isEmpty();
    }

    @Test
    @DisplayName("G46b the class loader of a closed connector can be collected")
    void classLoaderUnloads() {
        assumeTrue(standsAlone(), "the plugin needs classes of its host");
        PluginCopy.mustUnload(KvConnectorProvider.class, provider(), limit(), this::oneLife);
    }

    /// Saves and, where it can, loads.
    private void oneLife(KvConnectorProvider connector) {
        for (int i = 0; i < 2; i++) {
            try (var harness =
                    ConnectorHarness.open(
                            connector,
                            config(producerRole(), "unloaded", optionsOfThisTest()),
                            fitting(shape()),
                            host(),
                            7)) {
                var request = harness.submit("r", prompt(462, 3, 1));
                harness.admit(request);
                harness.step();
                harness.awaitLoad(request, limit());
                harness.prefill(request, 100);
                harness.finish(request, FinishReason.STOP);
                harness.settle(limit());
            }
        }
    }
}
