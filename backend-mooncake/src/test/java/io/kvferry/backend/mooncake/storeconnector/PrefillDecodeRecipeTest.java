// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.TOKENS;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.submit;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.EventSink;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.util.Map;
import java.util.UUID;

/// vLLM's recipe for prefill and decode with a store: the prefiller has MooncakeConnector as
/// producer and the store as both, the decoder MooncakeConnector and the store as consumers.
class PrefillDecodeRecipeTest {
    private final String store = "recipe-" + UUID.randomUUID();

    @AfterEach
    void closeStore() {
        EmbeddedStores.closeNow(store);
    }

    private String config(String id, String role, String storeRole, String p2pOptions) {
        return """
        {"kv_connector": "MultiConnector", "kv_role": "%s", "engine_id": "%s",
         "kv_connector_extra_config": {"connectors": [
          {"kv_connector": "MooncakeConnector", "kv_role": "%s", "kv_connector_extra_config": {%s}},
          {"kv_connector": "MooncakeStoreConnector", "kv_role": "%s",
           "kv_connector_extra_config": {"store_name": "%s", "global_segment_size": %d}}]}}\
        """
                .formatted(role, id, role, p2pOptions, storeRole, store, 32 << 20);
    }

    private static Engine open(Kvferry kvferry, String json) {
        var selected = kvferry.kv(json);
        return Engine.open(
                        EngineRuns.config(1, Map.of())
                                .host(kvferry.services())
                                .kvConnector(selected.provider(), selected.config()))
                .start();
    }

    private static RequestHandle prefill(Engine p, int seed, String transfer) {
        return p.submit(
                GenerationRequest.of(prompt(seed, TOKENS), SamplingParams.greedy(1))
                        .withKvParams(
                                new TransferParams(
                                        Map.of(
                                                "do_remote_decode",
                                                true,
                                                "do_remote_prefill",
                                                false,
                                                "transfer_id",
                                                transfer))));
    }

    private static RequestHandle decode(Engine d, int seed, int port, String transfer) {
        return d.submit(
                GenerationRequest.of(prompt(seed, TOKENS), SamplingParams.greedy(8))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withKvParams(
                                new TransferParams(
                                        Map.of(
                                                "do_remote_decode",
                                                false,
                                                "do_remote_prefill",
                                                true,
                                                "remote_bootstrap_addr",
                                                "http://127.0.0.1:" + port,
                                                "remote_engine_id",
                                                "p",
                                                "transfer_id",
                                                transfer))));
    }

    private static int loadedFrom(Outcome outcome, String child) {
        return outcome.usage().external().stream()
                .filter(share -> share.source().contains(child))
                .mapToInt(LookupResult.Share::tokens)
                .sum();
    }

    @Test
    void handsOverDirectlyAndKeepsPrefixesInTheStore() throws IOException {
        int port = freePort();
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE);
                var alone = EngineRuns.alone(Map.of());
                var d = open(kvferry, config("d", "kv_consumer", "kv_consumer", ""))) {
            var first =
                    open(
                            kvferry,
                            config("p", "kv_producer", "kv_both", "\"bootstrap_port\": " + port));
            try (var p = first) {
                for (int i = 0; i < 4; i++) {
                    prefill(p, i, "x" + i);
                    var outcome = finished(decode(d, i, port, "x" + i));
                    assertThat(outcome.tokens()).isEqualTo(finished(submit(alone, i)).tokens());
                    assertThat(loadedFrom(outcome, "MooncakeConnector"))
                            .as("%s", outcome.usage())
                            .isGreaterThanOrEqualTo(TOKENS - 1);
                }
                assertNothingHeld(p);
                assertNothingHeld(d);
                var again = finished(submit(p, 0));
                assertThat(loadedFrom(again, "MooncakeStoreConnector"))
                        .as("the prefiller finds its own prefixes: %s", again.usage())
                        .isEqualTo(TOKENS / 16 * 16);
            }
            for (int i = 0; i < 4; i++) { // without a prefiller, from the store
                var outcome = finished(submit(d, i));
                assertThat(outcome.tokens()).isEqualTo(finished(submit(alone, i)).tokens());
                assertThat(loadedFrom(outcome, "MooncakeStoreConnector"))
                        .isEqualTo(TOKENS / 16 * 16);
            }
            assertNothingHeld(d);
        }
    }
}
