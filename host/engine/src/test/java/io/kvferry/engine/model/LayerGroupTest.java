// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheGroup.Kind;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;

import java.util.List;

class LayerGroupTest {
    private static KvFormat.Heads heads(int kvHeads) {
        return new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, kvHeads, 64);
    }

    private static ModelInfo model(int kvHeads, List<LayerGroup> groups) {
        return new ModelInfo(
                "m",
                "d",
                "r-1",
                groups,
                kvHeads,
                64,
                DType.FLOAT16,
                KvLayout.LBNHC,
                1,
                100,
                1000,
                List.of(0),
                0);
    }

    @Test
    void countsKeysAndValuesOfAllHeadsWhereNothingElseIsSaid() {
        var info = model(8, ModelInfo.llamaLayers(2));
        assertThat(info.layers()).isEqualTo(2);
        assertThat(info.blockBytes(16, 1)).isEqualTo(2 * 16 * 8 * 64 * 2);
        assertThat(info.cacheSpec(16, 10, 4).groups())
                .containsExactly(
                        new KvCacheGroup(
                                0,
                                Kind.FULL_ATTENTION,
                                heads(8),
                                List.of(
                                        "model.layers.0.self_attn.attn",
                                        "model.layers.1.self_attn.attn"),
                                16,
                                2 * 16 * 2 * 64 * 2));
    }

    @Test
    void expressesWindowsStatesAndLatentCaches() {
        var info =
                model(
                        8,
                        List.of(
                                LayerGroup.attention(List.of("full")),
                                new LayerGroup(
                                        Kind.SLIDING_WINDOW, List.of("near"), 2, 512, 0, 0, false),
                                new LayerGroup(
                                        Kind.RECURRENT_STATE,
                                        List.of("state"),
                                        4,
                                        0,
                                        0,
                                        4000,
                                        false),
                                new LayerGroup(
                                        Kind.FULL_ATTENTION,
                                        List.of("latent"),
                                        1,
                                        0,
                                        1152,
                                        0,
                                        true)));
        assertThat(info.cacheSpec(16, 10, 2).groups())
                .containsExactly(
                        new KvCacheGroup(
                                0, Kind.FULL_ATTENTION, heads(8), List.of("full"), 16, 16 * 1024),
                        new KvCacheGroup(
                                1,
                                Kind.SLIDING_WINDOW,
                                heads(8),
                                List.of("near"),
                                32,
                                32 * 1024,
                                512),
                        new KvCacheGroup(
                                2,
                                Kind.RECURRENT_STATE,
                                new KvFormat.Opaque(DType.FLOAT16),
                                List.of("state"),
                                64,
                                2000),
                        new KvCacheGroup(
                                3,
                                Kind.FULL_ATTENTION,
                                new KvFormat.Vectors(DType.FLOAT16, 576),
                                List.of("latent"),
                                16,
                                16 * 1152));
    }

    @Test
    void splitsHeadsOnlyWhereRanksKeepShares() {
        assertThatThrownBy(() -> model(1, ModelInfo.llamaLayers(1)).cacheSpec(16, 10, 2))
                .hasMessageContaining("1 KV heads of m cannot be split over 2 ranks");
        var latent = new LayerGroup(Kind.FULL_ATTENTION, List.of("latent"), 1, 0, 1152, 0, true);
        assertThat(model(1, List.of(latent)).cacheSpec(16, 10, 2).groups().getFirst().blockBytes())
                .isEqualTo(16 * 1152);
    }

    @Test
    void refusesWindowsThatDoNotFitTheKind() {
        var layers = List.of("l");
        assertThatThrownBy(() -> new LayerGroup(Kind.SLIDING_WINDOW, layers, 1, 0, 0, 0, false))
                .hasMessageContaining("window of 0");
        assertThatThrownBy(() -> new LayerGroup(Kind.FULL_ATTENTION, layers, 1, 8, 0, 0, false))
                .hasMessageContaining("window of 8");
        assertThatThrownBy(() -> new LayerGroup(Kind.RECURRENT_STATE, layers, 0, 0, 0, 8, false))
                .hasMessageContaining("blockMultiple 0");
    }
}
