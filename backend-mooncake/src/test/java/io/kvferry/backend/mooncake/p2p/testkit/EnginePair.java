// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.p2p.MooncakeConnectorProvider;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.TransferParams;

import java.util.HashMap;
import java.util.Map;

/// Whole engines that hand over through the connector. Their synthetic model verifies every byte
/// that it did not write itself.
public final class EnginePair {
    private EnginePair() {}

    /// A running prefill engine with id `p`.
    public static Engine prefiller(int port, int tp, Map<String, Object> model) {
        return prefiller(port, tp, model, Map.of());
    }

    public static Engine prefiller(
            int port, int tp, Map<String, Object> model, Map<String, Object> options) {
        var all = new HashMap<String, Object>(options);
        all.put("bootstrap_port", port);
        return open(KvRole.PRODUCER, "p", tp, model, all);
    }

    /// A running decode engine.
    public static Engine decoder(int tp, Map<String, Object> model) {
        return decoder(tp, model, Map.of());
    }

    public static Engine decoder(int tp, Map<String, Object> model, Map<String, Object> options) {
        return open(KvRole.CONSUMER, "d", tp, model, options);
    }

    private static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options) {
        return open(role, id, tp, model, options, HostServices.NONE);
    }

    public static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host) {
        return open(role, id, tp, model, options, host, new MooncakeConnectorProvider());
    }

    public static Engine open(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options,
            HostServices host,
            KvConnectorProvider provider) {
        var all = new HashMap<String, Object>(options);
        all.putIfAbsent("side_channel", SideChannelOption.option());
        return Engine.open(
                        EngineRuns.config(tp, model)
                                .host(host)
                                .kvConnector(
                                        provider,
                                        ConnectorConfig.of("MooncakeConnector", role, id, all)))
                .start();
    }

    public static RequestHandle prefill(Engine p, int[] prompt, String transferId) {
        return p.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(1))
                        .withKvParams(new TransferParams(TestEngine.decodeElsewhere(transferId))));
    }

    public static RequestHandle decode(Engine d, int[] prompt, int port, String transferId) {
        return d.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(EngineRuns.GENERATED))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withKvParams(
                                new TransferParams(
                                        TestEngine.prefillAt(
                                                "http://127.0.0.1:" + port, "p", transferId))));
    }

    public static RequestHandle generate(Engine engine, int[] prompt) {
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(EngineRuns.GENERATED)));
    }
}
