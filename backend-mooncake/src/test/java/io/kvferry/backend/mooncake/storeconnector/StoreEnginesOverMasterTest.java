// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.tck.FreePorts.freePorts;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.master.MasterChild;
import io.kvferry.backend.mooncake.store.remote.OwnerChild;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Two engines over two owners and a master, each a process of its own. One owner and the master
/// are killed under load and come back. The synthetic model verifies every byte that it did not
/// write itself.
class StoreEnginesOverMasterTest {
    private static final int TOKENS = 150;
    private static final int PREFIX = TOKENS / 16 * 16;
    private static final long BYTES = 32 << 20;
    private static final Duration SOON = Duration.ofSeconds(100);

    private static Engine engine(String id, String master, String preferred) {
        var options = new HashMap<String, Object>();
        options.put("store", "master://" + master);
        if (!preferred.isEmpty()) {
            options.put("preferred_segment", preferred);
        }
        return Engine.open(
                        config().kvConnector(
                                        new MooncakeStoreConnectorProvider(),
                                        ConnectorConfig.of(
                                                MooncakeStoreConnectorProvider.NAME,
                                                KvRole.BOTH,
                                                id,
                                                options)))
                .start();
    }

    private static EngineConfig config() {
        return EngineConfig.of(
                        new SyntheticProvider(), Path.of("."), Map.of("kv_heads", 4L, "groups", 2L))
                .blockCount(256)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    private static RequestHandle submit(Engine engine, int seed) {
        var prompt = new int[TOKENS];
        for (int i = 0; i < TOKENS; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(8))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE));
    }

    private static Outcome.Finished finished(RequestHandle handle) {
        var outcome = handle.await(Deadline.in(SOON));
        assertThat(outcome).as(handle.id()).isPresent();
        assertThat(outcome.get()).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome.get();
    }

    private static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    private static void awaitNothingHeld(Engine engine) {
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

    @Test
    @Timeout(500)
    void anOwnerAndTheMasterThatAreKilledUnderLoadCostHitsAndNothingElse() throws Exception {
        int port = freePorts(3);
        String at = "127.0.0.1:";
        String address = at + port;
        var master = new MasterChild(port);
        var one = new OwnerChild(port + 1, BYTES, address);
        var two = new OwnerChild(port + 2, BYTES, address);
        try (var first = engine("first", address, at + (port + 1));
                var second = engine("second", address, "");
                var alone = Engine.open(config()).start()) {
            awaitHits(first, second, alone, 1000);
            var handles = new ArrayList<RequestHandle>();
            for (int i = 0; i < 40; i++) {
                handles.add(submit(i % 2 == 0 ? first : second, i / 4));
                if (i == 10) {
                    finished(handles.getFirst()); // so that something is under way
                    master.kill();
                } else if (i == 25) {
                    one.kill();
                }
            }
            for (int i = 0; i < 40; i++) {
                assertThat(finished(handles.get(i)).tokens())
                        .isEqualTo(finished(submit(alone, i / 4)).tokens());
            }
            assertThat(first.stats().health()).isEmpty();
            // Over one owner, and without the master.
            awaitHits(first, second, alone, 2000);
            master = new MasterChild(port);
            one = new OwnerChild(port + 1, BYTES, address);
            awaitHits(second, first, alone, 3000);
            awaitNothingHeld(first);
            awaitNothingHeld(second);
        } finally {
            one.close();
            two.close();
            master.close();
        }
    }

    /// Until one engine loads what the other has stored; the tokens are those of an engine alone.
    private static void awaitHits(Engine writer, Engine reader, Engine alone, int seed) {
        var limit = Deadline.in(SOON);
        for (int next = seed; ; next++) {
            var expected = finished(submit(alone, next)).tokens();
            assertThat(finished(submit(writer, next)).tokens()).isEqualTo(expected);
            awaitNothingHeld(writer);
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
