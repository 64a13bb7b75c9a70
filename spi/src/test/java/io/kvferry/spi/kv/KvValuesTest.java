// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;

class KvValuesTest {
    @Test
    void transferIdsTellTheirTransferApart() {
        var id = TransferId.load("r", 1);
        assertThat(id).isEqualTo(TransferId.load("r", 1)).isNotEqualTo(TransferId.save("r", 1));
        assertThat(id.forChild("a")).isNotEqualTo(id).isNotEqualTo(id.forChild("b"));
        assertThat(id).isNotEqualTo(TransferId.load("r", 2));
        assertThat(new TransferId("r", 1, TransferId.Direction.SAVE, 1, ""))
                .isNotEqualTo(new TransferId("r", 1, TransferId.Direction.SAVE, 2, ""))
                .hasToString("SAVE:r/1.1");
    }

    @Test
    void lookupsCheckThemselves() {
        assertThatThrownBy(() ->
                        LookupResult.hit(
                                0, LookupResult.LoadMode.ASYNC, "s", LookupResult.Tier.HOST))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new LookupResult.Hit(4, LookupResult.LoadMode.SYNC, List.of()))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new LookupResult.Pending(Duration.ofMillis(-1)))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() ->
                        new LoadAssignment(
                                TransferId.load("r", 0), 8, 4, LookupResult.LoadMode.SYNC))
                .isInstanceOf(IllegalArgumentException.class);
        assertThat(LoadAssignment.none(TransferId.load("r", 0)).isEmpty()).isTrue();
    }

    private static KvCacheGroup group(int index, KvCacheGroup.Kind kind, int blockTokens) {
        int window = kind == KvCacheGroup.Kind.SLIDING_WINDOW ? 8 : 0;
        return new KvCacheGroup(
                index,
                kind,
                new KvFormat.Opaque(DType.FLOAT16),
                List.of("layer " + index),
                blockTokens,
                64,
                window);
    }

    private static int validTo(KvCacheSpec cache, int group, int... positions) {
        var load = new LoadAssignment(TransferId.load("r", 0), 8, 32, LookupResult.LoadMode.SYNC);
        return load.validTo(cache, List.of(new Completion.FailedBlocks(group, positions)));
    }

    @Test
    void failedBlocksCutALoadOff() {
        var full = group(0, KvCacheGroup.Kind.FULL_ATTENTION, 4);
        var two = new KvCacheSpec(List.of(full, group(1, full.kind(), 8)), 9);
        assertThat(validTo(two, 0, 6, 4)).isEqualTo(16);
        assertThat(validTo(two, 0, 5)).as("in the middle of a block of group 1").isEqualTo(16);
        assertThat(validTo(two, 1, 3)).isEqualTo(24);
        assertThat(validTo(two, 0)).as("no position means all").isEqualTo(8);
        assertThat(validTo(two, 0, 7, 8)).as("a block beyond the load").isEqualTo(8);
        assertThat(validTo(two, 0, 7, 1)).as("a block before the load").isEqualTo(8);
        assertThat(validTo(two, 2, 7)).as("an unknown group").isEqualTo(8);
    }

    @Test
    void aFailedBlockOfAWindowOrStateVoidsALoad() {
        var full = group(0, KvCacheGroup.Kind.FULL_ATTENTION, 4);
        for (var kind :
                List.of(KvCacheGroup.Kind.SLIDING_WINDOW, KvCacheGroup.Kind.RECURRENT_STATE)) {
            var cache = new KvCacheSpec(List.of(full, group(1, kind, 4)), 9);
            assertThat(validTo(cache, 1, 7)).isEqualTo(8);
            assertThat(validTo(cache, 0, 7)).as("a shorter window was not loaded").isEqualTo(8);
        }
    }
}
