// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.util.Map;

/// What the commands that look into a store see of several owners.
class StoreToolTest {
    private static OptionValues options(String store) {
        return new StoreLsCommand().options().read("test", Map.of("store", store));
    }

    private static void put(StoreOwner owner, String key) {
        try (var store =
                        RemoteStore.open(
                                RemoteStoreConfig.of(owner.address()), StoreContract.ONE, false);
                var arena = Arena.ofShared()) {
            var results = new int[1];
            store.put(
                    new StoreBatch().add(key).buffer(arena.allocate(100 + key.length(), 64)),
                    PutOptions.DEFAULT,
                    results);
            assertThat(results[0]).as(key).isZero();
        }
    }

    @Test
    void allOwnersOfAMasterAreLookedInto() {
        try (var master = StoreMaster.start(StoreMaster.Settings.local(0));
                var one = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var two = StoreOwner.start(StoreOwner.Settings.local(0, 1 << 20));
                var first = OwnerMembership.start(RemoteStoreConfig.of(master.address()), one);
                var second = OwnerMembership.start(RemoteStoreConfig.of(master.address()), two)) {
            assertThat(first.isListed() && second.isListed()).isTrue();
            put(one, "a");
            put(two, "bb");
            put(one, "ccc");
            put(two, "ccc");
            try (var looked = StoreTool.open(options("master://" + master.address()))) {
                assertThat(looked.list("", 10))
                        .extracting(placed -> placed.object().key())
                        .containsExactly("a", "bb", "ccc");
                assertThat(looked.list("", 2)).hasSize(2);
                assertThat(looked.list("b", 10)).hasSize(1);
                var found = looked.find("bb").orElseThrow();
                assertThat(found.owner().address()).isEqualTo(two.address());
                assertThat(found.object().bytes()).isEqualTo(102);
                assertThat(looked.find("b")).isEmpty();
            }
            try (var looked = StoreTool.open(options(one.address()))) {
                assertThat(looked.find("a")).isPresent();
                assertThat(looked.find("bb")).isEmpty();
            }
            assertThatThrownBy(() -> StoreTool.open(options("master://" + one.address())))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("does not answer");
        }
    }
}
