// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller.answer;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.nativeengine.NativeConfig;
import io.kvferry.backend.mooncake.nativeengine.NativeTransferEngine;
import io.kvferry.backend.mooncake.nativeengine.TransferEngineDouble;
import io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/// The connector over `engine=native`, with a C double of Mooncake's library. The double reaches
/// segments of its own process only.
@SuppressWarnings("NullAway.Init")
class NativeEngineTest {
    private static Path library;
    private static Map<String, Object> options;

    @BeforeAll
    static void compile() {
        library = TransferEngineDouble.compile();
        options = Map.of("engine", "native", "library", library.toString());
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

    /// Nothing refuses what Mooncake's library is sent, so the blocks must not be used again before
    /// the prefiller's own limits are over.
    @ParameterizedTest
    @ValueSource(strings = {"refused", "lost", "garbage", "refused and revoked"})
    void aLoadThatFailsIsHeldUntilNobodyWritesItsBlocks(String end) throws Exception {
        for (int tries = 1; !isHeldUntilNobodyWrites(end); tries++) {
            assertThat(tries).as("times that the writer overran its limits").isLessThan(5);
        }
    }

    /// False when the machine kept the writer from ending within its limits, so that nothing can be
    /// told.
    private static boolean isHeldUntilNobodyWrites(String end) throws Exception {
        var limits =
                Map.of(
                        "peer_layout",
                        "alike",
                        "abort_request_timeout",
                        "500ms",
                        "transfer_timeout",
                        "1500ms");
        var all = new HashMap<String, Object>(options);
        all.putAll(limits);
        try (var prefiller = new ScriptedPrefiller();
                var writer = NativeTransferEngine.start(NativeConfig.of(library, "127.0.0.1"));
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", all)) {
            var target = d.request("d-1", 64, 20, prefiller.params("x"));
            long begun = System.nanoTime();
            var load = d.beginDecode(target, 0);
            var asked = prefiller.request();
            var until = Deadline.in(Duration.ofSeconds(1));
            var late = new FutureTask<>(() -> writesUntil(until, writer, asked.message()));
            Thread.ofPlatform().daemon().start(late);
            switch (end) {
                case "lost" -> prefiller.hangUp();
                case "garbage" -> asked.asker().answer("garbage".getBytes(UTF_8));
                default -> answer(asked, List.of(), List.of("d-1"));
            }
            if (end.endsWith("revoked")) {
                d.revoke(load);
            }
            assertThat(d.await(load)).isNotInstanceOf(Completion.Completed.class);
            d.regions.getFirst().forEach(region -> region.segment().fill((byte) 0)); // used again
            long lastWrite = late.get(SOON.toSeconds(), TimeUnit.SECONDS);
            if (lastWrite - begun > TimeUnit.MILLISECONDS.toNanos(1450)) {
                return false;
            }
            d.assertUntouched(target);
            return true;
        }
    }

    /// A prefiller whose library goes on with what it accepted.
    ///
    /// @return when the last write ended
    private static long writesUntil(
            Deadline until, NativeTransferEngine writer, XferMetadata decoder) {
        int arrived = 0;
        try (var source = writer.allocate(1024)) {
            source.memory().fill((byte) 0x55);
            do {
                var block =
                        Ranges.of(
                                source.address(),
                                decoder.regions().baseAddresses()[0] + 20 * 1024L,
                                1024);
                var write = EngineRequest.write(decoder.segmentName(), block, Deadline.in(SOON));
                arrived += writer.transfer(write) instanceof EngineOutcome.Completed ? 1 : 0;
            } while (!until.passed());
        }
        long ended = System.nanoTime();
        assertThat(arrived).isPositive();
        return ended;
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
