// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.nativeengine.TransferEngineDouble;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.util.Map;

/// The connector over `engine=native`, with a C double of Mooncake's library. The double reaches
/// segments of its own process only.
@SuppressWarnings("NullAway.Init")
class NativeEngineTest {
    private static Map<String, Object> options;

    @BeforeAll
    static void compile() {
        options = Map.of("engine", "native", "library", TransferEngineDouble.compile().toString());
    }

    @Test
    void handsOverThroughTheLibrary() {
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options)) {
            for (int i = 0; i < 3; i++) {
                var hold = p.prefill(p.request("p-" + i, 70, 5, decodeElsewhere("x" + i)), i);
                var target =
                        d.request("d-" + i, 70, 20 + 6 * i, prefillAt(p.bootstrap, "p", "x" + i));
                assertThat(d.await(d.beginDecode(target, 0)))
                        .isEqualTo(new Completion.Completed(5L * 3 * 1024));
                assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
                d.assertHolds(target, 0, i);
            }
        }
    }

    @Test
    void splitsHeadsThroughTheLibrary() {
        var shape = new Shape(1, 4, 2, 1, 48, 256, false).withLayout(KvLayout.LBNHC);
        try (var p = new TestEngine(shape.withTp(2), KvRole.PRODUCER, "p", options);
                var d = new TestEngine(shape, KvRole.CONSUMER, "d", options)) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 8);
            var target = d.request("d-1", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 8);
        }
    }

    /// A library that knows no write capability must not be given one, or every write would fail.
    @Test
    void aDecoderWithCapabilitiesGivesNoneToALibraryThatKnowsNone() {
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", Map.of())) {
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 1);
            var target = d.request("d-1", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .as("no segment of the double's process, so refused, by the library")
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().message())
                                            .doesNotContain("capabilities"));
            d.assertUntouched(target);
        }
    }

    @Test
    void aProtocolThatTheJavaEngineLacksIsRefusedAtTheStart() {
        assertThatThrownBy(() ->
                        new TestEngine(
                                Shape.SMALL,
                                KvRole.PRODUCER,
                                "p",
                                Map.of("mooncake_protocol", "rdma")))
                .hasMessageContaining("needs engine=native");
    }
}
