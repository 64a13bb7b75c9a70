// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.SOON;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;

import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Engines that share a store through the connector.
final class StoreRuns {
    static final int TOKENS = 150;

    /// Tokens of full blocks, which are stored.
    static final int PREFIX = TOKENS / 16 * 16;

    /// Two groups of layers.
    static final Map<String, Object> GROUPS = Map.of("groups", 2L);

    private StoreRuns() {}

    /// An engine that has not been started.
    static Engine opened(
            KvRole role,
            String id,
            int tp,
            Map<String, Object> model,
            Map<String, Object> options) {
        return Engine.open(
                EngineRuns.config(tp, model)
                        .kvConnector(
                                new MooncakeStoreConnectorProvider(),
                                ConnectorConfig.of(
                                        MooncakeStoreConnectorProvider.NAME, role, id, options)));
    }

    /// A running engine that saves and loads.
    static Engine engine(
            String id, int tp, Map<String, Object> model, Map<String, Object> options) {
        return opened(KvRole.BOTH, id, tp, model, options).start();
    }

    static RequestHandle submit(Engine engine, int seed) {
        return EngineRuns.submit(engine, prompt(seed, TOKENS));
    }

    /// Until one engine loads what the other has stored; the tokens are those of an engine alone.
    static void awaitHits(Engine writer, Engine reader, Engine alone, int seed) {
        var limit = Deadline.in(SOON);
        for (int next = seed; ; next++) {
            var expected = finished(submit(alone, next)).tokens();
            assertThat(finished(submit(writer, next)).tokens()).isEqualTo(expected);
            assertNothingHeld(writer);
            var outcome = finished(submit(reader, next));
            assertThat(outcome.tokens()).isEqualTo(expected);
            if (loaded(outcome) == PREFIX) {
                return;
            }
            assertThat(limit.passed()).as("the store is not used").isFalse();
            LockSupport.parkNanos(50_000_000);
        }
    }
}
