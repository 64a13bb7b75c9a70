// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.natives.CompiledLibrary;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/// Keys and values as other users of a cluster have them.
class PlainValuesTest {
    private static final long SIZE = 300;

    private final StoreDouble mooncake = StoreDouble.load();
    private final Arena arena = Arena.ofShared();
    private final ClusterStore vllm = ClusterStore.openPlain(mooncake.config(), "model@");
    private final ClusterStore other = ClusterStore.openPlain(mooncake.config(), "mo.el@");
    private final ClusterStore own =
            ClusterStore.open(mooncake.config(), new StoreIdentity("", "model", "l"));

    @AfterEach
    void close() {
        List.of(vllm, other, own).forEach(ClusterStore::close);
        mooncake.assertClean();
        mooncake.reset();
        arena.close();
    }

    private MemorySegment memory(long bytes, int fill) {
        return arena.allocate(bytes).fill((byte) fill);
    }

    private static int put(ClusterStore store, String key, MemorySegment value) {
        var results = new int[1];
        store.put(new StoreBatch().add(key).buffer(value), PutOptions.DEFAULT, results);
        return results[0];
    }

    private static long get(ClusterStore store, String key, MemorySegment value) {
        var results = new long[1];
        store.get(new StoreBatch().add(key).buffer(value), results);
        return results[0];
    }

    private static ClusterConfig ofTenant(String tenant, ClusterConfig config) {
        return new ClusterConfig(
                config.master(),
                config.metadata(),
                config.localHost(),
                config.protocol(),
                config.device(),
                config.segmentBytes(),
                config.localBufferBytes(),
                tenant,
                config.library(),
                config.askLimit(),
                config.moveLimit());
    }

    @Test
    void aTenantThatTheLibraryDoesNotTellIsRefused() {
        var older =
                CompiledLibrary.compile(
                        StoreDouble.class, "/native/mooncake_store_double.c", "-DWITHOUT_TENANTS");
        var config = mooncake.config().withLibrary(older);
        ClusterStore.openPlain(config, "model@").close();
        assertThatThrownBy(() -> ClusterStore.openPlain(ofTenant("one", config), "model@"))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining("tenant one");
    }

    @Test
    void anObjectIsTheValueUnderTheKeyAndNothingElse() {
        MemorySegment value = memory(SIZE, 7);
        assertThat(put(vllm, "model@a", value)).isZero();
        assertThat(other.size("model@a")).as("bytes in the cluster").isEqualTo(SIZE);
        MemorySegment back = memory(SIZE, 0);
        assertThat(get(other, "model@a", back)).isEqualTo(SIZE);
        assertThat(back.mismatch(value)).isNegative();
        assertThat(own.size("model@a")).as("no object of kvferry's own form").isNegative();
    }

    @Test
    void whatHasAnotherLengthIsNotTakenAndStays() {
        assertThat(put(vllm, "model@a", memory(SIZE, 7))).isZero();
        assertThat(get(vllm, "model@a", memory(SIZE + 1, 0))).isNotEqualTo(SIZE + 1);
        assertThat(get(vllm, "model@a", memory(SIZE - 1, 0))).isNotEqualTo(SIZE - 1);
        assertThat(get(vllm, "model@a", memory(SIZE, 0))).isEqualTo(SIZE);
    }

    /// Calls of both forms take turns in the same memory.
    @Test
    void sealedAndPlainValuesDoNotMeet() {
        for (int round = 0; round < 20; round++) {
            MemorySegment value = memory(SIZE, round);
            assertThat(put(own, "key" + round, value)).isZero();
            assertThat(put(vllm, "model@" + round, value)).isZero();
            MemorySegment back = memory(SIZE, -1);
            assertThat(get(own, "key" + round, back)).isEqualTo(SIZE);
            assertThat(back.mismatch(value)).isNegative();
            assertThat(get(vllm, "model@" + round, back.fill((byte) -1))).isEqualTo(SIZE);
            assertThat(back.mismatch(value)).isNegative();
        }
    }

    @Test
    void aResetRemovesWhatBeginsWithTheModelAndNothingElse() {
        MemorySegment value = memory(SIZE, 7);
        assertThat(put(own, "key", value)).isZero();
        assertThat(put(vllm, "model@a", value)).isZero();
        assertThat(put(vllm, "other@model@a", value)).isZero();
        assertThat(other.removeAll(true)).as("a dot is a dot").isZero();
        assertThat(vllm.removeAll(true)).isEqualTo(1);
        assertThat(vllm.size("other@model@a")).isEqualTo(SIZE);
        assertThat(own.size("key")).isEqualTo(SIZE);
    }
}
