// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.store.cluster.ClusterStore;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Count;
import io.kvferry.engine.Engine;
import io.kvferry.engine.Outcome;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfEnvironmentVariable;

import java.util.Map;
import java.util.stream.IntStream;

/// Engines whose blocks stand in a cluster under vLLM's keys, as bare values. Their synthetic model
/// verifies every byte that it did not write itself.
@DisabledIfEnvironmentVariable(
        named = "PYTHONHASHSEED",
        matches = ".+",
        disabledReason = "the hashes are those without a seed")
class VllmKeysEnginesTest {
    /// Of tokens 100 to 169 in blocks of 16, as vLLM 0.33.0 was seen to hash them.
    private static final String[] HASHES = {
        "605fd9e311c0890137f4c7df65be59449fb378632eecf434d1ecdf87c874fd55",
        "f1a08810157991d5280c49952540afc2feab260cd65a24bb2e94951059393917",
        "dc5a0111b9f2919d4789af4cfceb558c50750d1cc0f56692144e9e182eba6c69",
        "6fd81c2e1686f99969e979feeb8ad285f2639d17056dbe486c7227160ecd624a"
    };

    private final StoreDouble mooncake = StoreDouble.load();

    @AfterEach
    void close() {
        mooncake.assertClean();
        mooncake.reset();
    }

    private Engine engine(String id, int tp) {
        return StoreRuns.engine(
                id,
                tp,
                Map.of("model", "/models/test-model/"),
                Map.of(
                        "store",
                        "mooncake://127.0.0.1:50051",
                        "library",
                        mooncake.file().toString(),
                        "rpc_timeout",
                        "30s",
                        "lookup_timeout",
                        "50s",
                        "key_form",
                        "vllm"));
    }

    private static Outcome.Finished run(Engine engine) {
        var outcome = finished(EngineRuns.submit(engine, IntStream.range(100, 170).toArray()));
        assertNothingHeld(engine); // so that every save is over
        return outcome;
    }

    @Test
    void oneEngineReadsWhatAnotherStoredUnderVllmsKeys() {
        for (int tp : new int[] {1, 2}) {
            int[] tokens;
            try (var writer = engine("writer", tp)) {
                var outcome = run(writer);
                assertThat(loaded(outcome)).isZero();
                tokens = outcome.tokens();
            }
            assertThat(mooncake.count(Count.OBJECTS)).isEqualTo((long) HASHES.length * tp);
            try (var store = ClusterStore.openPlain(mooncake.config(), "test-model@")) {
                for (int rank = 0; rank < tp; rank++) {
                    for (String hash : HASHES) {
                        String key = "test-model@tp_rank:" + rank + "@pcp0@dcp0@pp_rank:0@group:0@";
                        assertThat(store.size(key + hash)).as(key + hash).isPositive();
                    }
                }
            }
            try (var reader = engine("reader", tp)) {
                var outcome = run(reader);
                assertThat(loaded(outcome)).isEqualTo(HASHES.length * 16);
                assertThat(outcome.tokens()).isEqualTo(tokens);
            }
            mooncake.reset();
        }
    }
}
