// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.testkit.PythonPeer;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// KV to and from a peer that is not kvferry: a real Mooncake engine behind pyzmq and msgspec.
@Tag("interop")
class RealPeerTest {
    private static final Shape SHAPE = Shape.SMALL;

    private static PythonPeer peer(String role, String... more) throws IOException {
        return peer(SHAPE, role, more);
    }

    private static PythonPeer peer(Shape shape, String role, String... more) throws IOException {
        var arguments =
                new ArrayList<>(
                        List.of(
                                role,
                                String.valueOf(shape.layers()),
                                String.valueOf(shape.blocks()),
                                String.valueOf(shape.kvHeads()),
                                String.valueOf(shape.headBytes())));
        arguments.addAll(List.of(more));
        return new PythonPeer(arguments.toArray(String[]::new));
    }

    private static String ready(PythonPeer peer) throws IOException {
        var line = peer.answer();
        assertThat(line).startsWith("READY ");
        return line.substring("READY ".length());
    }

    @Test
    void aRealPrefillerFillsADecoderHere() throws IOException {
        try (var p = peer("prefill");
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", Map.of())) {
            var bootstrap = ready(p);
            for (int i = 0; i < 3; i++) {
                var target =
                        d.request(
                                "d-" + i, 70, 5 + 8 * i, prefillAt(bootstrap, "python-p", "x" + i));
                var load = d.beginDecode(target, 0);
                assertThat(p.ask("send x%d %d %d 5", i, i + 3, 40 - 7 * i)).isEqualTo("ok");
                assertThat(d.await(load)).isEqualTo(new Completion.Completed(5L * 3 * 1024));
                d.assertHolds(target, 0, i + 3);
            }
            assertThat(p.ask("forms")).as("the layout travels once").isEqualTo("1 full 2 short");
            assertThat(p.ask("forget")).isEqualTo("ok");
            var target = d.request("d-again", 70, 50, prefillAt(bootstrap, "python-p", "y"));
            p.ask("send y 9 2 5");
            assertThat(d.await(d.beginDecode(target, 32)))
                    .isEqualTo(new Completion.Completed(3L * 3 * 1024));
            d.assertHolds(target, 2, 9);
            assertThat(p.ask("forms")).isEqualTo("2 full 2 short");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"G2", "G3", "G3B", "G4", "G5", "G6", "G7"})
    void aRealPrefillerOfEveryGenerationFillsADecoderThatSpeaksIt(String generation)
            throws IOException {
        var options =
                Map.<String, Object>of(
                        "wire_generation",
                        generation,
                        "layout_reuse",
                        false,
                        "peer_layout",
                        "alike");
        try (var p = peer("prefill", generation);
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", options)) {
            var target = d.request("d-1", 70, 5, prefillAt(ready(p), "python-p", "x"));
            p.ask("send x 7 11 5");
            assertThat(d.await(d.beginDecode(target, 32)))
                    .isEqualTo(new Completion.Completed(3L * 3 * 1024));
            d.assertHolds(target, 2, 7);
            d.assertUntouched(d.request("local", 32, 5, Map.of()));
            d.assertUntouched(d.request("after", 16, 10, Map.of()));
        }
    }

    @Test
    void aRealPrefillerRefusesAGenerationThatItDoesNotKnow() throws IOException {
        var options = Map.<String, Object>of("wire_generation", "G3");
        try (var p = peer("prefill", "G7");
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", options)) {
            var target = d.request("d-1", 70, 5, prefillAt(ready(p), "python-p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().message())
                                            .contains("Expected `array`, got `int`"));
            d.assertUntouched(target);
        }
    }

    @Test
    void theDeathOfARealPrefillerFailsTheLoad() throws IOException {
        try (var p = peer("prefill");
                var d = new TestEngine(SHAPE, KvRole.CONSUMER, "d", Map.of())) {
            var bootstrap = ready(p);
            var first = d.request("d-1", 70, 5, prefillAt(bootstrap, "python-p", "x"));
            p.ask("send x 7 11 5");
            assertThat(d.await(d.beginDecode(first, 0))).isInstanceOf(Completion.Completed.class);
            var second = d.request("d-2", 70, 15, prefillAt(bootstrap, "python-p", "never"));
            var load = d.beginDecode(second, 0);
            p.kill();
            assertThat(d.await(load))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.PEER_LOST));
            d.assertUntouched(second);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"G2", "G3", "G3B", "G4", "G5", "G6", "G7"})
    void aRealDecoderIsFilledFromHere(String form) throws IOException {
        try (var d = peer("decode");
                var p =
                        new TestEngine(
                                SHAPE,
                                KvRole.PRODUCER,
                                "p",
                                Map.of("peer_layout", form.equals("G7") ? "checked" : "alike"))) {
            ready(d);
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 4);
            assertThat(d.ask("pull %s p x 30 5 %s", p.bootstrap, form))
                    .isEqualTo("FINISH python-d-x %d None", form.equals("G7") ? 1 : 0);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            assertThat(d.ask("check 4 30 5")).isEqualTo("same");
        }
    }

    @Test
    void aRealDecoderMayRelyOnTheKeptLayoutAndIsToldWhenThereIsNone() throws IOException {
        try (var d = peer("decode");
                var p = new TestEngine(SHAPE, KvRole.PRODUCER, "p", Map.of())) {
            ready(d);
            p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 4);
            assertThat(d.ask("pull %s p x 30 5 short", p.bootstrap))
                    .startsWith("LAYOUT_MISS - 0 Mooncake KV layout 0x");
            assertThat(d.ask("pull %s p x 30 5 G7", p.bootstrap)).startsWith("FINISH python-d-x 1");
            p.prefill(p.request("p-2", 70, 15, decodeElsewhere("y")), 6);
            assertThat(d.ask("pull %s p y 40 5 short", p.bootstrap))
                    .startsWith("FINISH python-d-y 1");
            assertThat(d.ask("check 6 40 5")).isEqualTo("same");
        }
    }

    @Test
    void aRealDecoderIsToldOfAWithdrawnPrefillAndMayRelease() throws IOException {
        try (var d = peer("decode");
                var p = new TestEngine(SHAPE, KvRole.PRODUCER, "p", Map.of())) {
            ready(d);
            var aborted = p.request("p-1", 70, 5, decodeElsewhere("x"));
            p.beginPrefill(aborted);
            p.finish(aborted, aborted.table(), FinishReason.ABORT);
            assertThat(d.ask("pull %s p x 30 5 G7", p.bootstrap)).contains("ended without KV");
            var hold = p.prefill(p.request("p-2", 70, 5, decodeElsewhere("y")), 4);
            assertThat(d.ask("pull %s p y 30 0 G7", p.bootstrap))
                    .isEqualTo("FINISH python-d-y 1 None");
            assertThat(p.await(hold)).isEqualTo(new Completion.Completed(0));
        }
    }

    private static final Shape WIDE = new Shape(1, 4, 3, 1, 80, 512, false);

    private static List<PythonPeer> ranks(String role, int tp) throws IOException {
        var peers = new ArrayList<PythonPeer>();
        for (int rank = 0; rank < tp; rank++) {
            peers.add(peer(WIDE, role, "G7", String.valueOf(tp), String.valueOf(rank)));
        }
        return peers;
    }

    private static void close(List<PythonPeer> peers) throws IOException {
        for (var peer : peers) {
            peer.close();
        }
    }

    @ParameterizedTest
    @CsvSource({"2, 1", "1, 2", "4, 2", "4, 1", "1, 4"})
    void realPrefillersFillADecoderOfAnotherTensorParallelSize(int prefillTp, int decodeTp)
            throws Exception {
        var prefillers = ranks("prefill", prefillTp);
        try (var bootstrap = BootstrapServer.start("127.0.0.1", 0);
                var client = new BootstrapClient(TestEngine.SOON);
                var d = new TestEngine(WIDE.withTp(decodeTp), KvRole.CONSUMER, "d", Map.of())) {
            var base = "http://127.0.0.1:" + bootstrap.port();
            for (int rank = 0; rank < prefillTp; rank++) {
                var p = prefillers.get(rank);
                ready(p);
                client.register(
                        URI.create(base),
                        new WorkerRegistration(
                                "python-p", 0, rank, 0, p.ask("address"), Optional.empty()));
                assertThat(p.ask("send x 9 11 5")).isEqualTo("ok");
            }
            var target = d.request("d-1", 70, 5, prefillAt(base, "python-p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 9);
            d.assertUntouched(d.request("after", 16, 10, Map.of()));
        } finally {
            close(prefillers);
        }
    }

    @ParameterizedTest
    @CsvSource({"2, 1", "1, 2", "4, 2", "4, 1", "1, 4"})
    void realDecodersOfAnotherTensorParallelSizeAreFilledFromHere(int prefillTp, int decodeTp)
            throws IOException {
        var decoders = ranks("decode", decodeTp);
        try (var p = new TestEngine(WIDE.withTp(prefillTp), KvRole.PRODUCER, "p", Map.of())) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 4);
            for (var d : decoders) {
                ready(d);
                assertThat(d.ask("pull %s p x 30 5 G7", p.bootstrap))
                        .isEqualTo("FINISH python-d-x 1 None");
            }
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            for (var d : decoders) {
                assertThat(d.ask("check 4 30 5")).isEqualTo("same");
            }
        } finally {
            close(decoders);
        }
    }
}
