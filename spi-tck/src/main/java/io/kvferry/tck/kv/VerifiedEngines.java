// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.TransferParams;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// kvferry's own engine on two ranks, under a model that verifies every byte of its cache. It keeps
/// no prefixes, so that what a prompt does not compute came from the connector.
///
/// @param loadLimit after which the engine takes a load back
/// @param patience how long a request, or a right on its blocks, may last
record VerifiedEngines(Duration loadLimit, Duration patience, HostServices host) {
    private static final int TOKENS = 6;

    Engine open(
            KvConnectorProvider provider,
            KvRole role,
            Map<String, Object> options,
            String id,
            LoadFailurePolicy policy) {
        var plain = ConnectorConfig.of(provider.name(), role, id, options);
        var config =
                new ConnectorConfig(
                        plain.connector(),
                        role,
                        id,
                        plain.bufferDevice(),
                        plain.bufferSizeBytes(),
                        plain.rank(),
                        plain.parallelSize(),
                        plain.ip(),
                        plain.port(),
                        policy,
                        options);
        return Engine.open(bare().kvConnector(provider, config).host(host));
    }

    private EngineConfig bare() {
        return EngineConfig.of(new SyntheticProvider(), Path.of(""), Map.of("verify", "all"))
                .blockTokens(4)
                .blockCount(256)
                .prefixCache(false)
                .worldSize(2)
                .loadLimit(loadLimit)
                .closeLimit(Duration.ofSeconds(1));
    }

    static GenerationRequest request(int[] tokens, TransferParams params) {
        return GenerationRequest.of(tokens, SamplingParams.greedy(TOKENS)).withKvParams(params);
    }

    Outcome run(Engine engine, GenerationRequest request) {
        return engine.submit(request)
                .await(Deadline.in(patience))
                .orElseThrow(() ->
                        new AssertionError(
                                "no outcome within " + patience + "; " + engine.stats()));
    }

    /// What the model says without any connector.
    int[] baseline(int[] tokens) {
        try (var engine = Engine.open(bare()).start()) {
            return ((Outcome.Finished) run(engine, request(tokens, TransferParams.EMPTY))).tokens();
        }
    }

    /// Waits until no connector has a right on any block.
    void awaitAllFree(Engine engine) {
        long end = System.nanoTime() + patience.toNanos();
        while (engine.stats().freeBlocks() != engine.stats().totalBlocks()) {
            assertThat(System.nanoTime())
                    .as("blocks never come back: %s", engine.stats())
                    .isLessThan(end);
            LockSupport.parkNanos(1_000_000);
        }
    }
}
