// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.MooncakeConnectorProvider;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Whole engines that hand over through the connector. Their synthetic model verifies every byte
/// that it did not write itself.
public final class EnginePair {
    public static final int BLOCKS = 256;
    public static final int GENERATED = 8;
    public static final Duration SOON = Duration.ofSeconds(60);

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
                        config(tp, model)
                                .host(host)
                                .kvConnector(
                                        provider,
                                        ConnectorConfig.of("MooncakeConnector", role, id, all)))
                .start();
    }

    /// An engine that computes everything itself.
    public static Engine alone(Map<String, Object> model) {
        return Engine.open(config(1, model)).start();
    }

    private static EngineConfig config(int tp, Map<String, Object> model) {
        var all = new HashMap<String, Object>(model);
        all.putIfAbsent("kv_heads", 4L);
        return EngineConfig.of(new SyntheticProvider(), Path.of("."), all)
                .worldSize(tp)
                .blockCount(BLOCKS)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    public static int[] prompt(int seed, int tokens) {
        var prompt = new int[tokens];
        for (int i = 0; i < tokens; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        return prompt;
    }

    public static RequestHandle prefill(Engine p, int[] prompt, String transferId) {
        return p.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(1))
                        .withKvParams(new TransferParams(TestEngine.decodeElsewhere(transferId))));
    }

    public static RequestHandle decode(Engine d, int[] prompt, int port, String transferId) {
        return d.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(GENERATED))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withKvParams(
                                new TransferParams(
                                        TestEngine.prefillAt(
                                                "http://127.0.0.1:" + port, "p", transferId))));
    }

    public static RequestHandle generate(Engine engine, int[] prompt) {
        return engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(GENERATED)));
    }

    public static Outcome.Finished finished(RequestHandle handle) {
        var outcome = handle.await(Deadline.in(SOON));
        assertThat(outcome).as(handle.id()).isPresent();
        assertThat(outcome.get()).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome.get();
    }

    public static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    /// Waits until no block is in use, and says so when some stay.
    public static void assertNothingHeld(Engine engine) {
        var limit = Deadline.in(SOON);
        for (var now = engine.stats();
                now.freeBlocks() < now.totalBlocks()
                        || now.held() > 0
                        || now.leasedBlocks() > 0
                        || now.quarantinedBlocks() > 0;
                now = engine.stats()) {
            assertThat(limit.passed()).as("blocks stay in use: %s", now).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }
}
