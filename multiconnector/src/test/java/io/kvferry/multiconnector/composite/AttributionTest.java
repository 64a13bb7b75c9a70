// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/// Tokens are attributed to the child that delivered them, not to the one that offered them.
class AttributionTest {
    private final ScriptedConnector a = child("A");
    private final ScriptedConnector b = child("B");
    private final ScriptedConnector c = child("C");
    private final Rig.Request request = new Rig.Request("r", 40);

    private static ScriptedConnector child(String name) {
        return new ScriptedConnector(name, ConnectorCapabilities.of(Feature.ASYNC_LOAD))
                .onLookup((_, local) ->
                        local < 32
                                ? LookupResult.hit(32 - local, LoadMode.ASYNC, name, Tier.DISK)
                                : LookupResult.MISS);
    }

    private static void fails(ScriptedConnector child, int... positions) {
        child.onLoad((_, _) ->
                new Completion.Failed(
                        new Failure(ErrorCode.STORAGE_IO, "disk gone"),
                        List.of(new Completion.FailedBlocks(0, positions))));
    }

    private static List<Share> delivered(Rig rig, TransferId load) {
        for (int i = 0; i < 20; i++) {
            if (!rig.step().completions().isEmpty()) {
                return ((SchedulerHalf.Composite) rig.scheduler).delivered(load);
            }
        }
        throw new AssertionError(load + " did not end");
    }

    private static Share share(String source, int tokens) {
        return new Share(source, Tier.DISK, tokens);
    }

    @Test
    void countsWhatAnotherChildDeliveredForThatChild() {
        fails(a, 2, 3); // the blocks before and behind are in place
        try (var rig = new Rig(1, Rig.multi("", "A", "B", "C"), a, b, c)) {
            var load = rig.admit(request, 0);
            assertThat(delivered(rig, load.id()))
                    .containsExactly(share("A", 8), share("B", 8), share("A", 16));
        }
    }

    /// What is in the usage of a response.
    @Test
    void anEngineCountsTheChildThatDeliveredAndNotTheOneThatPromised() {
        fails(a, 0, 1, 2, 3, 4, 5, 6, 7);
        var children =
                Map.<String, Object>of(
                        "connectors",
                        List.of(Map.of("kv_connector", "A"), Map.of("kv_connector", "B")));
        var catalog =
                PluginCatalog.ofClassPath()
                        .with(KvConnectorProvider.class, a)
                        .with(KvConnectorProvider.class, b);
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE);
                var engine =
                        Engine.open(
                                EngineConfig.of(
                                                new SyntheticProvider(),
                                                Path.of(""),
                                                Map.of("verify", "none"))
                                        .host(kvferry.services())
                                        .blockTokens(4)
                                        .blockCount(64)
                                        .kvConnector(
                                                new MultiConnectorProvider(),
                                                ChaosReference.config(
                                                        "MultiConnector",
                                                        LoadFailurePolicy.FAIL,
                                                        children)))) {
            var prompt = IntStream.rangeClosed(1, 40).toArray();
            var handle = engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)));
            for (int i = 0; i < 1000 && handle.await(Deadline.in(Duration.ZERO)).isEmpty(); i++) {
                engine.step();
            }
            var outcome = handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
            assertThat(outcome).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome.usage().external()).containsExactly(share("B", 32));
        }
    }

    @Test
    void countsNothingBehindTokensThatNobodyDelivered() {
        fails(a, 4);
        fails(b, 4);
        fails(c, 4);
        try (var rig = new Rig(1, Rig.multi("", "A", "B", "C"), a, b, c)) {
            var load = rig.admit(request, 0);
            assertThat(delivered(rig, load.id())).containsExactly(share("A", 16));
        }
    }

    @Test
    void asksANestedCompositeWhichOfItsChildrenDelivered() {
        fails(a, 0, 1, 2, 3, 4, 5, 6, 7);
        var nested =
                """
                {"kv_connector": "MultiConnector", "name": "inner", "kv_connector_extra_config":
                 {"connectors": [{"kv_connector": "A"}, {"kv_connector": "B"}]}}\
                """;
        try (var rig = new Rig(1, Rig.multi("", nested, "C"), a, b, c)) {
            var load = rig.admit(request, 0);
            assertThat(delivered(rig, load.id())).containsExactly(share("B", 32));
        }
    }
}
