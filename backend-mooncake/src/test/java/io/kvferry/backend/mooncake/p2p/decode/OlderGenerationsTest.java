// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static io.kvferry.backend.mooncake.p2p.testkit.Outcomes.assertFailed;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse.Status;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.EnumSource.Mode;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Map;

/// Requests of the generations before G5, which leave much unsaid: what they can say moves the
/// right bytes in both roles, and what they cannot is refused rather than guessed.
class OlderGenerationsTest {
    private static final int BLOCK_BYTES = Shape.SMALL.blockBytes();
    private static final int LAYERS = Shape.SMALL.layers();

    private static TestEngine prefiller(Shape shape) {
        return new TestEngine(shape, KvRole.PRODUCER, "p", Map.of("peer_layout", "alike"));
    }

    private static TestEngine decoder(Shape shape, Generation generation) {
        return new TestEngine(
                shape,
                KvRole.CONSUMER,
                "d",
                Map.of("wire_generation", generation.name(), "peer_layout", "alike"));
    }

    private static Stranger stranger(Generation generation) {
        return new Stranger(generation, LAYERS, 40, BLOCK_BYTES);
    }

    private static void assertRefused(XferResponse answer, String text) {
        assertThat(answer.status()).isEqualTo(Status.ERROR);
        assertThat(answer.errMsg()).contains(text);
    }

    /// Blocks of a rank of `engine` against blocks of a stranger.
    private static void assertSame(
            TestEngine engine, int rank, int first, Stranger other, int there, int count) {
        for (var region : engine.regions.get(rank)) {
            for (int i = 0; i < count; i++) {
                assertThat(
                                region.block(first + i)
                                        .mismatch(other.block(region.layerIndex(), there + i)))
                        .as("layer %d block %d", region.layerIndex(), i)
                        .isEqualTo(-1);
            }
        }
    }

    // A prefiller here, a decoder of then.

    @ParameterizedTest
    @EnumSource
    void aDecoderOfAnyGenerationIsFilled(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = stranger(generation)) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            var answer = d.pull(p, "x", 20, 3);
            assertThat(answer)
                    .isEqualTo(
                            new XferResponse(
                                    Status.FINISH,
                                    List.of("d-x"),
                                    List.of(),
                                    "",
                                    generation == Generation.G7 ? Stranger.LAYOUT_ID : 0));
            assertThat(p.await(hold)).isEqualTo(new Completion.Completed(3L * LAYERS * 1024));
            assertSame(p, 0, 7, d, 20, 3); // it lacked the last three of five
            for (int outside : new int[] {19, 23}) {
                assertThat(d.block(1, outside).mismatch(MemorySegment.ofArray(new byte[1024])))
                        .isEqualTo(-1);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aDecoderOfAnyGenerationMayRelease(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = stranger(generation)) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertThat(d.pull(p, "x", 0, 0).okReqs()).containsExactly("d-x");
            assertThat(p.await(hold)).isEqualTo(new Completion.Completed(0));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G2", "G3", "G3B", "G4"})
    void aDecoderThatWouldSplitHeadsOfHalvesIsRefused(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = new Stranger(generation, LAYERS, 40, BLOCK_BYTES / 2)) {
            d.tpSize = 2;
            d.tpRank = 1;
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertRefused(
                    d.pull(p, "x", 20, 5),
                    generation == Generation.G2
                            ? "which takes equal tensor-parallel sizes, not 1 on P and 2 on D"
                            : "does not say whether a block is K and V in halves");
            assertThat(p.resultNow(hold)).as("still held, for who can take it").isEmpty();
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G3", "G3B", "G4"})
    void aDecoderWithTheSameHeadsOnMoreRanksIsFilled(Generation generation) throws Exception {
        var shape = new Shape(1, 1, LAYERS, 1, 80, BLOCK_BYTES, false);
        try (var p = prefiller(shape);
                var d = stranger(generation)) {
            d.tpSize = 2;
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertThat(d.pull(p, "x", 20, 5).okReqs()).containsExactly("d-x");
            assertSame(p, 0, 5, d, 20, 5);
            assertThat(p.resultNow(hold)).as("the other rank still has to come").isEmpty();
            d.tpRank = 1;
            assertThat(d.pull(p, "x", 30, 5).okReqs()).containsExactly("d-x");
            assertSame(p, 0, 5, d, 30, 5);
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G2", "G3", "G3B"})
    void positionsThatCannotBeTrustedAreRefused(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var staged = prefiller(Shape.SMALL.withPp(3));
                var fewer = new Stranger(generation, LAYERS - 1, 40, BLOCK_BYTES);
                var single = new Stranger(generation, 1, 40, BLOCK_BYTES)) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertRefused(fewer.pull(p, "x", 20, 5), "as many regions as P has, 3, not 2");
            staged.prefill(staged.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertRefused(single.pull(staged, "x", 20, 5), "one pipeline stage; P has 3");
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G3", "G3B", "G4", "G5", "G6", "G7"})
    void anotherBlockLengthIsRefused(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = new Stranger(generation, LAYERS, 40, BLOCK_BYTES * 2)) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            assertRefused(d.pull(p, "x", 20, 5), "KV block length is 1024 on P and 2048 on D");
        }
    }

    @Test
    void columnsThatDisagreeAreRefused() throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = stranger(Generation.G3)) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            var all = d.regions();
            var regions =
                    new WireRegions(
                            all.baseAddresses(),
                            new long[] {1024},
                            new long[] {1024},
                            List.of(),
                            new int[0],
                            new int[0],
                            List.of(),
                            new long[0]);
            assertRefused(
                    d.pull(p, "x", 20, 5, regions), "matching metadata lengths, got base_addr=3");
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G5", "G6", "G7"})
    void layerNamesAreMandatoryWhereTheyAreKnown(Generation generation) throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = stranger(generation)) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            var all = d.regions();
            var nameless =
                    new WireRegions(
                            all.baseAddresses(),
                            all.blockLengths(),
                            all.kvBlockLengths(),
                            List.of(),
                            new int[0],
                            new int[0],
                            List.of(),
                            new long[0]);
            assertRefused(
                    d.pull(p, "x", 20, 5, nameless),
                    "base_addr=3, block_lens=3, kv_block_lens=3, layer_names=0, layer_indices=0");
            assertThat(p.resultNow(hold)).isEmpty();
        }
    }

    /// vLLM of summer 2026 lists a region of K and V with the length of one half, which each side
    /// doubles by a rule of its own. A block of half the length could be meant as well.
    @Test
    void aDecoderThatSendsTheLengthOfAHalfIsRefused() throws Exception {
        try (var p = prefiller(Shape.SMALL);
                var d = stranger(Generation.G5)) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            var all = d.regions();
            var halves =
                    new WireRegions(
                            all.baseAddresses(),
                            all.blockLengths(),
                            new long[] {512, 512, 512},
                            all.layerNames(),
                            all.layerIndices(),
                            all.groups(),
                            List.of(),
                            new long[0]);
            assertRefused(
                    d.pull(p, "x", 20, 5, halves), "KV block length is 1024 on P and 512 on D");
        }
    }

    // A decoder here, a prefiller of then.

    @ParameterizedTest
    @EnumSource(mode = Mode.EXCLUDE, names = "G6") // with one pipeline stage it is G5
    void aPrefillerOfAnyGenerationFillsUs(Generation generation) throws Exception {
        try (var p = stranger(generation);
                var d = decoder(Shape.SMALL, generation)) {
            var bootstrap = p.serve(1, 1);
            p.fill(9, 0, 3);
            var target = d.request("d-1", 70, 20, prefillAt(bootstrap, "stranger", "x"));
            assertThat(d.await(d.beginDecode(target, 32)))
                    .isEqualTo(new Completion.Completed(3L * LAYERS * 1024));
            assertSame(d, 0, 22, p, 0, 3);
            d.assertUntouched(d.request("before", 32, 20, Map.of()));
            d.assertUntouched(d.request("after", 16, 25, Map.of()));
        }
    }

    @ParameterizedTest
    @CsvSource({
        "G2,2,1,'does not say block lengths, and tensor-parallel sizes differ: 2 on P and 1 on D'",
        "G3,2,1,does not say whether a block is K and V in halves",
        "G3B,2,1,does not say whether a block is K and V in halves",
        "G4,2,1,does not say whether a block is K and V in halves",
        "G2,1,3,the prefiller has pipeline stages",
        "G3,1,3,the prefiller has pipeline stages",
        "G3B,1,3,the prefiller has pipeline stages"
    })
    void whatAPrefillerOfThenWouldGuessIsNotAsked(
            Generation generation, int tp, int pp, String text) throws Exception {
        try (var p = stranger(generation);
                var d = decoder(Shape.SMALL, generation)) {
            var target = d.request("d-1", 70, 20, prefillAt(p.serve(tp, pp), "stranger", "x"));
            assertFailed(d.await(d.beginDecode(target, 0)), ErrorCode.INCOMPATIBLE, text);
            d.assertUntouched(target);
        }
    }

    @Test
    void whatCannotBeSaidEndsTheStart() {
        assertUnsayable(
                Generation.G4, Shape.SMALL.withInterleavedLayers(), "between the blocks of layer");
        assertUnsayable(Generation.G3, Shape.SMALL.withGroups(2), "several KV cache groups");
        assertUnsayable(Generation.G3B, Shape.SMALL.withPp(3), "which layers a pipeline stage has");
        var rank = new RankInfo(0, 1, 0, 1, 0, 1);
        try (var arena = Arena.ofConfined()) {
            var uneven = List.of(region(arena, 0, 64), region(arena, 1, 128));
            OlderForms.requireSayable(Generation.G3, uneven, rank);
            assertThatThrownBy(() -> OlderForms.requireSayable(Generation.G2, uneven, rank))
                    .hasMessage("wire_generation=G2 cannot say that block lengths differ");
        }
    }

    private static KvRegion region(Arena arena, int layer, long blockBytes) {
        var memory = new MemoryRange.Host(arena.allocate(2 * blockBytes));
        return new KvRegion("l" + layer, layer, 0, memory, 2, blockBytes, blockBytes);
    }

    private static void assertUnsayable(Generation generation, Shape shape, String text) {
        assertThatThrownBy(() -> decoder(shape, generation).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("wire_generation=" + generation + " cannot say")
                .hasMessageContaining(text);
    }

    // Both here: what kvferry adds to a message says what the generation does not.

    @ParameterizedTest
    @CsvSource({
        "G3,1,2,LBHNC",
        "G3,2,1,LBNHC",
        "G3B,2,1,LBHNC",
        "G3B,1,2,LBNHC",
        "G4,2,4,LBHNC",
        "G4,4,2,LBNHC"
    })
    void betweenOursHeadsAreSplitInOlderGenerationsToo(
            Generation generation, int prefillTp, int decodeTp, KvLayout layout) {
        var shape = new Shape(1, 4, 2, 1, 48, 256, false).withLayout(layout);
        try (var p = prefiller(shape.withTp(prefillTp));
                var d = decoder(shape.withTp(decodeTp), generation)) {
            handOver(p, d);
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"G3B", "G4"})
    void severalGroupsFitAListPerGroup(Generation generation) {
        var shape = Shape.SMALL.withGroups(2);
        try (var p = prefiller(shape);
                var d = decoder(shape, generation)) {
            handOver(p, d);
        }
    }

    @ParameterizedTest
    @CsvSource({"2,1", "2,2", "4,1"})
    void layerNamesFindTheirPipelineStage(int prefillPp, int decodePp) {
        var shape = new Shape(1, 2, 4, 1, 48, 256, false);
        try (var p = prefiller(shape.withPp(prefillPp));
                var d = decoder(shape.withPp(decodePp), Generation.G4)) {
            handOver(p, d);
        }
    }

    private static void handOver(TestEngine p, TestEngine d) {
        var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
        TransferId load = d.beginDecode(target, 0);
        var hold = p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
        assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
        assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        d.assertHolds(target, 0, 77);
    }
}
