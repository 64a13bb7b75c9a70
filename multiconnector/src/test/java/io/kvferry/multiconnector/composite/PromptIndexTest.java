// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/// The prompts of one call have one external id: children of a composite tell them apart by their
/// index, on every level.
class PromptIndexTest {
    private final Set<String> seen = ConcurrentHashMap.newKeySet();

    private ScriptedConnector child(String name) {
        return new ScriptedConnector(name, ConnectorCapabilities.of())
                .onLookup((request, _) -> {
                    see(name, "lookup", request);
                    return LookupResult.MISS;
                })
                .onFinish((request, _) -> {
                    see(name, "finish", request);
                    return FinishDecision.RELEASE;
                });
    }

    private void see(String child, String call, RequestView request) {
        seen.add(child + " " + call + " " + request.externalId() + " " + request.promptIndex());
    }

    /// Children see the request itself, or a view of it where params are meant for one of them.
    private static Stream<TransferParams> params() {
        return Stream.of(
                TransferParams.EMPTY,
                new TransferParams(Map.of("A", Map.of(), "inner", Map.of("B", Map.of()))));
    }

    @ParameterizedTest
    @MethodSource("params")
    void childrenAreToldThePlaceOfThePromptInItsCall(TransferParams params) {
        var inner = Map.of("connectors", List.of(Map.of("kv_connector", "B")));
        var children =
                Map.<String, Object>of(
                        "connectors",
                        List.of(
                                Map.of("kv_connector", "A"),
                                Map.of(
                                        "kv_connector",
                                        "MultiConnector",
                                        "name",
                                        "inner",
                                        "kv_connector_extra_config",
                                        inner)));
        var catalog =
                PluginCatalog.ofClassPath()
                        .with(KvConnectorProvider.class, child("A"))
                        .with(KvConnectorProvider.class, child("B"));
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE);
                var engine =
                        Engine.open(
                                EngineConfig.of(
                                                new SyntheticProvider(),
                                                Path.of(""),
                                                Map.of("verify", "none"))
                                        .host(kvferry.services())
                                        .kvConnector(
                                                new MultiConnectorProvider(),
                                                ChaosReference.config(
                                                        "MultiConnector",
                                                        LoadFailurePolicy.FAIL,
                                                        children)))) {
            var call =
                    IntStream.range(0, 2)
                            .mapToObj(index ->
                                    engine.submit(
                                            GenerationRequest.of(
                                                            new int[] {1, 2, 3 + index},
                                                            SamplingParams.greedy(1))
                                                    .withKvParams(params)
                                                    .withExternalId("call")
                                                    .withPromptIndex(index)))
                            .toList();
            for (int i = 0; i < 100; i++) {
                engine.step();
            }
            assertThat(call)
                    .allMatch(handle -> handle.await(Deadline.in(Duration.ZERO)).isPresent());
        }
        assertThat(seen)
                .containsExactlyInAnyOrder(
                        "A lookup call 0",
                        "A lookup call 1",
                        "A finish call 0",
                        "A finish call 1",
                        "B lookup call 0",
                        "B lookup call 1",
                        "B finish call 0",
                        "B finish call 1");
    }
}
