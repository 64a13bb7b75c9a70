// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.util.ArrayList;
import java.util.Map;
import java.util.Objects;

/// Many peers, many layers, and block lists of every form.
class ConnectorScaleTest {
    private static TestEngine prefiller(Shape shape, String id) {
        return new TestEngine(shape, KvRole.PRODUCER, id, Map.of());
    }

    private static TestEngine decoder(Shape shape) {
        return new TestEngine(shape, KvRole.CONSUMER, "d", Map.of());
    }

    @Test
    void eightDecodersAreFilledAtOnce() {
        fillDecoders(8);
    }

    @Test
    @Tag("soak")
    @Timeout(600)
    void sixtyFourDecodersAreFilledAtOnce() {
        fillDecoders(64);
    }

    private static void fillDecoders(int count) {
        var shape = new Shape(1, 2, 3, 1, 8 * count, 128, false);
        var decoders = new ArrayList<TestEngine>();
        try (var p = prefiller(shape, "p")) {
            var targets = new ArrayList<FakeRequest>();
            var loads = new ArrayList<TransferId>();
            var holds = new ArrayList<TransferId>();
            for (int i = 0; i < count; i++) {
                holds.add(p.prefill(p.request("p-" + i, 64, 5 * i, decodeElsewhere("x" + i)), i));
            }
            for (int i = 0; i < count; i++) {
                var d = decoder(shape);
                decoders.add(d);
                targets.add(d.request("d", 64, 3 * i, prefillAt(p.bootstrap, "p", "x" + i)));
                loads.add(d.beginDecode(targets.get(i), 0));
            }
            for (int i = 0; i < count; i++) {
                assertThat(decoders.get(i).await(loads.get(i)))
                        .isInstanceOf(Completion.Completed.class);
                decoders.get(i).assertHolds(targets.get(i), 0, i);
                assertThat(p.await(holds.get(i))).isInstanceOf(Completion.Completed.class);
            }
        } finally {
            decoders.forEach(TestEngine::close);
        }
    }

    @Test
    void eightPrefillersFillOneDecoderAtOnce() {
        fillFrom(8);
    }

    @Test
    @Tag("soak")
    @Timeout(600)
    void sixtyFourPrefillersFillOneDecoderAtOnce() {
        fillFrom(64);
    }

    private static void fillFrom(int count) {
        var shape = new Shape(1, 2, 3, 1, 8 * count, 128, false);
        var prefillers = new ArrayList<TestEngine>();
        try (var d = decoder(shape)) {
            var targets = new ArrayList<FakeRequest>();
            var loads = new ArrayList<TransferId>();
            var holds = new ArrayList<TransferId>();
            for (int i = 0; i < count; i++) {
                var p = prefiller(shape, "p" + i);
                prefillers.add(p);
                holds.add(p.prefill(p.request("p", 64, 2 * i, decodeElsewhere("x")), i));
                targets.add(d.request("d-" + i, 64, 5 * i, prefillAt(p.bootstrap, "p" + i, "x")));
                loads.add(d.beginDecode(targets.get(i), 0));
            }
            for (int i = 0; i < count; i++) {
                assertThat(d.await(loads.get(i))).isInstanceOf(Completion.Completed.class);
                d.assertHolds(targets.get(i), 0, i);
                assertThat(prefillers.get(i).await(holds.get(i)))
                        .isInstanceOf(Completion.Completed.class);
            }
        } finally {
            prefillers.forEach(TestEngine::close);
        }
    }

    @Test
    void tenThousandLayersTravelInOneMessage() {
        var shape = new Shape(1, 1, 10_000, 1, 6, 16, false);
        try (var p = prefiller(shape, "p");
                var d = decoder(shape)) {
            var hold = p.prefill(p.request("p-1", 32, 1, decodeElsewhere("x")), 3);
            var target = d.request("d-1", 32, 4, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isEqualTo(new Completion.Completed(10_000L * 2 * 16));
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
        }
    }

    @Test
    void blocksThatLieApartOnEitherSideTravelInRunsOfBothSides() {
        try (var p = prefiller(Shape.SMALL, "p");
                var d = decoder(Shape.SMALL)) {
            var source = p.request("p-1", 80, 0, decodeElsewhere("x"));
            source.blocks[0] = new int[] {5, 6, 9, 8, 20};
            var target = d.request("d-1", 80, 0, prefillAt(p.bootstrap, "p", "x"));
            target.blocks[0] = new int[] {30, 31, 32, 40, 39};
            var hold = p.prefill(source, 3);
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
            d.assertUntouched(d.request("between", 96, 33, Map.of()));
            var descriptors =
                    Objects.requireNonNull(p.stats.distributions().get("mooncake_num_descriptors"));
            assertThat(descriptors.sum()).as("5 and 6; 9; 8; 20, in each layer").isEqualTo(4 * 3);
        }
    }

    /// The engine gives a sliding window's blocks back once they are behind it.
    @Test
    void aGroupMayLackTheBlocksBehindItsWindow() {
        var shape = Shape.SMALL.withGroups(2);
        int none = BlockTable.NO_BLOCK;
        try (var p = prefiller(shape, "p");
                var d = decoder(shape)) {
            var source = p.request("p-1", 128, 5, decodeElsewhere("x"));
            source.blocks[1] = new int[] {none, none, 40, 41};
            var target = d.request("d-1", 128, 20, prefillAt(p.bootstrap, "p", "x"));
            target.blocks[1] = new int[] {none, none, none, 50};
            var hold = p.prefill(source, 3);
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
            var more = d.request("d-2", 128, 30, prefillAt(p.bootstrap, "p", "y"));
            more.blocks[1] = new int[] {none, 60, 61, 62};
            var lacks = p.request("p-2", 128, 5, decodeElsewhere("y"));
            lacks.blocks[1] = new int[] {none, none, 40, 41};
            p.prefill(lacks, 3);
            assertThat(d.await(d.beginDecode(more, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().message())
                                            .contains("P num blocks less than D in group 1"));
        }
    }
}
