// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.RemovedKeys;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;

import org.junit.jupiter.api.Test;

import java.util.List;

/// What a user hears of removals that it asks for late.
class RemovalLogTest {
    @Test
    void removalsThatNobodyTakesAreBounded() {
        var log = new RemovalLog(StoreContract.ONE);
        var object = new StoredObject(StoreContract.ONE, "k", 0, 1, 0, 0, 0, false, null);
        for (int i = 0; i <= RemovedKeys.MOST; i++) {
            log.removed(object);
        }
        assertThat(log.drain()).isEqualTo(new Store.Removals(true, List.of()));
        log.removed(object);
        assertThat(log.drain()).isEqualTo(new Store.Removals(false, List.of("k")));
    }

    @Test
    void removalsThatNobodyTakesAreBoundedInBytes() {
        var log = new RemovalLog(StoreContract.ONE);
        for (int i = 0; i < 256; i++) {
            String key = i + "k".repeat(64 << 10);
            log.removed(new StoredObject(StoreContract.ONE, key, 0, 1, 0, 0, 0, false, null));
        }
        assertThat(log.drain()).isEqualTo(new Store.Removals(true, List.of()));
    }
}
