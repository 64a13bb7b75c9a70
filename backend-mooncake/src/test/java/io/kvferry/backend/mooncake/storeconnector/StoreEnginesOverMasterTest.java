// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.GROUPS;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.awaitHits;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.submit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.directory.DirectoryProcesses;
import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.util.ArrayList;
import java.util.HashMap;

/// Two engines over two owners and a master, each a process of its own. One owner and the master
/// are killed under load and come back. The synthetic model verifies every byte that it did not
/// write itself.
class StoreEnginesOverMasterTest {
    private static final long BYTES = 32 << 20;

    private static Engine engine(String id, String master, String preferred) {
        var options = new HashMap<String, Object>();
        options.put("store", "master://" + master);
        if (!preferred.isEmpty()) {
            options.put("preferred_segment", preferred);
        }
        return StoreRuns.engine(id, 1, GROUPS, options);
    }

    @Test
    @Timeout(500)
    void anOwnerAndTheMasterThatAreKilledUnderLoadCostHitsAndNothingElse() throws Exception {
        try (var processes = new DirectoryProcesses(2, BYTES)) {
            processes.startAll();
            serve(processes);
        }
    }

    private static void serve(DirectoryProcesses processes) throws Exception {
        try (var first = engine("first", processes.master(), processes.owner(0));
                var second = engine("second", processes.master(), "");
                var alone = alone(GROUPS)) {
            awaitHits(first, second, alone, 1000);
            var handles = new ArrayList<RequestHandle>();
            for (int i = 0; i < 40; i++) {
                handles.add(submit(i % 2 == 0 ? first : second, i / 4));
                if (i == 10) {
                    finished(handles.getFirst()); // so that something is under way
                    processes.killMaster();
                } else if (i == 25) {
                    processes.killOwner(0);
                }
            }
            for (int i = 0; i < 40; i++) {
                assertThat(finished(handles.get(i)).tokens())
                        .isEqualTo(finished(submit(alone, i / 4)).tokens());
            }
            assertThat(first.stats().health()).isEmpty();
            // Over one owner, and without the master.
            awaitHits(first, second, alone, 2000);
            processes.startAll();
            awaitHits(second, first, alone, 3000);
            assertNothingHeld(first);
            assertNothingHeld(second);
        }
    }
}
