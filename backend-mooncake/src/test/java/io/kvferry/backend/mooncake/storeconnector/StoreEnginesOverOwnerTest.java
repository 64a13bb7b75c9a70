// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.SOON;
import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.GROUPS;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.PREFIX;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.awaitHits;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.submit;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.remote.OwnerChild;
import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Map;

/// Engines whose store is in a process of its own, which is killed. Their synthetic model verifies
/// every byte that it did not write itself.
class StoreEnginesOverOwnerTest {
    private static final long BYTES = 32 << 20;

    private static Engine engine(String id, int tp, String store) {
        return StoreRuns.engine(id, tp, GROUPS, Map.of("store", store));
    }

    @Test
    void aSecondLifeOfAnEngineReadsWhatTheFirstOneStored() throws Exception {
        try (var owner = new OwnerChild(0, BYTES);
                var alone = alone(GROUPS)) {
            for (int life = 0; life < 2; life++) {
                try (var engine = engine("life", 2, owner.address())) {
                    for (int seed = 0; seed < 3; seed++) {
                        var expected = finished(submit(alone, seed)).tokens();
                        var limit = Deadline.in(SOON);
                        var outcome = finished(submit(engine, seed));
                        // A lookup or save that a busy machine held up for seconds is a miss once.
                        while (life == 1 && loaded(outcome) < PREFIX && !limit.passed()) {
                            assertThat(outcome.tokens()).isEqualTo(expected);
                            assertNothingHeld(engine);
                            outcome = finished(submit(engine, seed));
                        }
                        assertThat(outcome.tokens()).isEqualTo(expected);
                        assertThat(loaded(outcome)).isEqualTo(life == 0 ? 0 : PREFIX);
                    }
                    assertNothingHeld(engine);
                }
            }
        }
    }

    /// Hits end with the owner and come back with its next life; no request notices more than that.
    @Test
    void anOwnerThatIsKilledUnderLoadCostsHitsAndNothingElse() throws Exception {
        int port = freePort();
        var owner = new OwnerChild(port, BYTES);
        try (var first = engine("first", 1, owner.address());
                var second = engine("second", 1, owner.address());
                var alone = alone(GROUPS)) {
            for (int round = 0; round < 2; round++) {
                var handles = new ArrayList<RequestHandle>();
                for (int i = 0; i < 40; i++) {
                    handles.add(submit(i % 2 == 0 ? first : second, i / 4));
                    if (i == 20) {
                        finished(handles.getFirst()); // so that something is under way
                        owner.kill();
                    }
                }
                for (int i = 0; i < 40; i++) {
                    assertThat(finished(handles.get(i)).tokens())
                            .isEqualTo(finished(submit(alone, i / 4)).tokens());
                }
                assertThat(first.stats().health()).isEmpty();
                owner = new OwnerChild(port, BYTES);
                awaitHits(first, second, alone, 1000 * (round + 1));
                assertNothingHeld(first);
                assertNothingHeld(second);
            }
        } finally {
            owner.close();
        }
    }
}
