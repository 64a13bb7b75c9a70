// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decode;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.generate;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefill;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.testkit.BackendHosts;
import io.kvferry.backend.mooncake.p2p.testkit.EnginePair;
import io.kvferry.backend.mooncake.p2p.testkit.GatedBackend;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.tck.memory.MemoryBackendProvider;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/// The connector over transfer backends of the host.
class HostBackendsTest {
    private static final Map<String, Object> OVER_MEMORY = BackendHosts.over("MEMORY");

    private static TestEngine prefiller(
            Shape shape, Map<String, Object> options, HostServices host) {
        return new TestEngine(shape, KvRole.PRODUCER, "p", options, host);
    }

    private static TestEngine decoder(Shape shape, Map<String, Object> options, HostServices host) {
        return new TestEngine(shape, KvRole.CONSUMER, "d", options, host);
    }

    private static Completion.Failed failed(Completion.Result result) {
        assertThat(result).isInstanceOf(Completion.Failed.class);
        return (Completion.Failed) result;
    }

    @ParameterizedTest
    @CsvSource({"1,1,1", "2,1,1", "1,2,2", "4,2,1"})
    void readsWhatAnotherNumberOfRanksHoldsByABackendOfAnotherClassLoader(
            int prefillTp, int decodeTp, int groups) {
        var host = BackendHosts.ofAnotherClassLoader();
        var shape = new Shape(1, 4, 4, groups, 80, 512, false);
        try (var p = prefiller(shape.withTp(prefillTp), OVER_MEMORY, host);
                var d = decoder(shape.withTp(decodeTp), OVER_MEMORY, host)) {
            for (int i = 0; i < 3; i++) {
                var hold = p.prefill(p.request("p" + i, 70, 5, decodeElsewhere("x" + i)), i);
                var target = d.request("d" + i, 70, 20, prefillAt(p.bootstrap, "p", "x" + i));
                assertThat(d.await(d.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Completed.class);
                d.assertHolds(target, 0, i);
                assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            }
            assertThat(d.stats.counters().getOrDefault("mooncake_num_successful_transfers", 0L))
                    .isPositive();
        }
    }

    /// Under the name that it had.
    @ParameterizedTest
    @ValueSource(strings = {"MOONCAKE", "MEMORY"})
    void aPrefillerThatStartsAnewIsReadAgain(String backend) throws IOException {
        var shape = new Shape(1, 4, 4, 1, 80, 512, false);
        var options = BackendHosts.over(backend);
        try (var kvferry = BackendHosts.agent();
                var d = decoder(shape, options, kvferry.services())) {
            for (int life = 0; life < 3; life++) {
                try (var p = prefiller(shape, options, kvferry.services())) {
                    var hold = p.prefill(p.request("p", 70, 5, decodeElsewhere("x")), life);
                    var target = d.request("d" + life, 70, 20, prefillAt(p.bootstrap, "p", "x"));
                    assertThat(d.await(d.beginDecode(target, 0)))
                            .as("life %d", life)
                            .isInstanceOf(Completion.Completed.class);
                    d.assertHolds(target, 0, life);
                    assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
                }
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"MOONCAKE", "MEMORY"})
    void enginesHandOverByTheAgent(String backend) throws IOException {
        int port = freePort();
        try (var kvferry = BackendHosts.agent();
                var p =
                        EnginePair.open(
                                KvRole.PRODUCER,
                                "p",
                                1,
                                Map.of(),
                                Map.of(
                                        "bootstrap_port",
                                        port,
                                        "transfer_backends",
                                        List.of(backend)),
                                kvferry.services());
                var d =
                        EnginePair.open(
                                KvRole.CONSUMER,
                                "d",
                                1,
                                Map.of(),
                                BackendHosts.over(backend),
                                kvferry.services());
                var alone = EngineRuns.alone(Map.of())) {
            var pairs = new ArrayList<RequestHandle>();
            for (int i = 0; i < 6; i++) {
                prefill(p, prompt(i, 150 + i), "x" + i);
                pairs.add(decode(d, prompt(i, 150 + i), port, "x" + i));
            }
            for (int i = 0; i < 6; i++) {
                var outcome = finished(pairs.get(i));
                assertThat(outcome.tokens())
                        .isEqualTo(finished(generate(alone, prompt(i, 150 + i))).tokens());
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(150 + i - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            var figures = d.stats().kvConnector();
            assertThat(figures.counters().getOrDefault(backend + "/transfers", 0L))
                    .as("%s", figures)
                    .isPositive();
            assertThat(figures.counters().getOrDefault(backend + "/transfer_bytes", 0L))
                    .isPositive();
        }
    }

    @Test
    void aCloseThatFailedIsTriedAgain() {
        var failing = new AtomicInteger(2);
        var closed = new AtomicInteger();
        var host =
                BackendHosts.of(
                        new MemoryBackendProvider(),
                        backend ->
                                BackendHosts.closing(
                                        backend,
                                        () -> {
                                            if (failing.getAndDecrement() > 0) {
                                                throw new KvFerryException(
                                                        ErrorCode.TIMEOUT, "thrown by the test");
                                            }
                                            closed.incrementAndGet();
                                        }));
        var plane =
                HostBackends.open(
                        host,
                        List.of(new Choice("MEMORY", Map.of())),
                        new PeerId("closing", 1),
                        "127.0.0.1");
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(plane::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        plane.close();
        assertThat(closed).hasValue(1);
    }

    @Test
    void bothSidesMustMoveBytesAlike() throws InterruptedException {
        var host = BackendHosts.ofAnotherClassLoader();
        try (var reading = decoder(Shape.SMALL, OVER_MEMORY, host);
                var written = decoder(Shape.SMALL, Map.of(), HostServices.NONE);
                var writing = prefiller(Shape.SMALL, Map.of(), HostServices.NONE);
                var offering = prefiller(Shape.SMALL, OVER_MEMORY, host);
                var vllm = new Stranger(Generation.G7, 3, 8, 1024)) {
            var hold = writing.prefill(writing.request("p", 70, 5, decodeElsewhere("x")), 1);
            assertRefused(reading, writing.bootstrap, "p", "x", "set transfer_backends on both");
            writing.revoke(hold);
            hold = offering.prefill(offering.request("p", 70, 5, decodeElsewhere("y")), 1);
            assertRefused(written, offering.bootstrap, "p", "y", "read by transfer_backends");
            offering.revoke(hold);
            assertRefused(reading, vllm.serve(1, 1), "stranger", "z", "is no kvferry engine");
        }
    }

    private static void assertRefused(
            TestEngine d, String bootstrap, String engine, String transfer, String why) {
        var target = d.request("d-" + transfer, 70, 20, prefillAt(bootstrap, engine, transfer));
        assertThat(failed(d.await(d.beginDecode(target, 0))).failure().message()).contains(why);
        d.assertUntouched(target);
    }

    @Test
    void aHostWithoutTheBackendIsRefusedAtTheStart() {
        assertThatThrownBy(() -> decoder(Shape.SMALL, OVER_MEMORY, HostServices.NONE))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContaining("transfer_backends");
        try (var hosts = BackendHosts.agent()) {
            assertThatThrownBy(() ->
                            decoder(
                                    Shape.SMALL,
                                    Map.of("transfer_backends", List.of("MEMROY")),
                                    hosts.services()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.NOT_FOUND))
                    .hasMessageContainingAll("transfer_backends: ", "MEMROY");
        }
        for (Object bad : List.of("MEMORY", List.of(), List.of(7), List.of(Map.of("nam", "x")))) {
            assertThatThrownBy(() ->
                            decoder(
                                    Shape.SMALL,
                                    Map.of("transfer_backends", bad),
                                    HostServices.NONE))
                    .hasMessageContaining("transfer_backends");
        }
    }

    @Test
    void aReadThatFailsIsAFailedLoadAndFreesThePrefiller() {
        var gate = new GatedBackend();
        try (var p = prefiller(Shape.SMALL, OVER_MEMORY, BackendHosts.of(gate.provider(), b -> b));
                var d =
                        decoder(
                                Shape.SMALL,
                                OVER_MEMORY,
                                BackendHosts.of(gate.provider(), gate::around))) {
            gate.failing = true;
            var hold = p.prefill(p.request("p", 70, 5, decodeElsewhere("x")), 1);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(failed(d.await(d.beginDecode(target, 0))).failure().message())
                    .contains("the wire broke");
            d.assertUntouched(target);
            assertThat(p.await(hold)).isInstanceOf(Completion.Failed.class);
        }
    }

    @Test
    void aReadThatGetsNoThreadIsAFailedLoadAndFreesThePrefiller() {
        var gate = new GatedBackend();
        try (var p = prefiller(Shape.SMALL, OVER_MEMORY, BackendHosts.of(gate.provider(), b -> b));
                var d =
                        decoder(
                                Shape.SMALL,
                                OVER_MEMORY,
                                BackendHosts.of(gate.provider(), gate::around))) {
            gate.withoutThreads = true;
            var hold = p.prefill(p.request("p", 70, 5, decodeElsewhere("x")), 1);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(failed(d.await(d.beginDecode(target, 0))).failure().message())
                    .contains("native thread");
            d.assertUntouched(target);
            assertThat(p.await(hold)).isInstanceOf(Completion.Failed.class);
        }
    }

    /// The prefiller reuses its blocks while they are read: the bytes are not used, even if the
    /// read succeeded.
    @Test
    void whatIsReadAfterTheEndOfTheHoldIsNotUsed() {
        var gate = new GatedBackend();
        try (var p = prefiller(Shape.SMALL, OVER_MEMORY, BackendHosts.of(gate.provider(), b -> b));
                var d =
                        decoder(
                                Shape.SMALL,
                                OVER_MEMORY,
                                BackendHosts.of(gate.provider(), gate::around))) {
            gate.close();
            var source = p.request("p", 70, 5, decodeElsewhere("x"));
            var hold = p.prefill(source, 1);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            var load = d.beginDecode(target, 0);
            gate.awaitWaiting(d);
            p.revoke(hold);
            assertThat(p.await(hold)).isNotInstanceOf(Completion.Completed.class);
            p.compute(source, 2); // another request's blocks by now
            gate.open();
            failed(d.await(load));
        }
    }

    /// A load that is revoked while it is read ends when the read has let go of its blocks, and not
    /// before.
    @Test
    void nothingLandsAfterRevoked() {
        var gate = new GatedBackend();
        try (var p = prefiller(Shape.SMALL, OVER_MEMORY, BackendHosts.of(gate.provider(), b -> b));
                var d =
                        decoder(
                                Shape.SMALL,
                                OVER_MEMORY,
                                BackendHosts.of(gate.provider(), gate::around))) {
            gate.close();
            var hold = p.prefill(p.request("p", 70, 5, decodeElsewhere("x")), 1);
            var target = d.request("d", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            TransferId load = d.beginDecode(target, 0);
            gate.awaitWaiting(d);
            d.revoke(load);
            for (int i = 0; i < 20; i++) {
                assertThat(d.resultNow(load)).as("the read may still write").isEmpty();
            }
            gate.open();
            assertThat(d.await(load)).isInstanceOf(Completion.Revoked.class);
            assertThat(p.await(hold)).isNotNull();
        }
    }

    /// A load that has no room is refused at once, and its prefiller need not keep the blocks until
    /// their time is up.
    @Test
    void aRefusedLoadFreesThePrefillersBlocks() {
        var gate = new GatedBackend();
        var one = new HashMap<>(OVER_MEMORY);
        one.put("max_loads", 1);
        try (var p = prefiller(Shape.SMALL, OVER_MEMORY, BackendHosts.of(gate.provider(), b -> b));
                var d = decoder(Shape.SMALL, one, BackendHosts.of(gate.provider(), gate::around))) {
            gate.close();
            var first = p.prefill(p.request("p1", 70, 5, decodeElsewhere("x1")), 1);
            var second = p.prefill(p.request("p2", 70, 15, decodeElsewhere("x2")), 2);
            var target = d.request("d1", 70, 20, prefillAt(p.bootstrap, "p", "x1"));
            var load = d.beginDecode(target, 0);
            gate.awaitWaiting(d);
            var refused =
                    d.beginDecode(d.request("d2", 70, 30, prefillAt(p.bootstrap, "p", "x2")), 0);
            assertThat(failed(d.await(refused)).failure().code()).isEqualTo(ErrorCode.BACKPRESSURE);
            assertThat(p.await(second)).isInstanceOf(Completion.Completed.class);
            gate.open();
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 1);
            assertThat(p.await(first)).isInstanceOf(Completion.Completed.class);
        }
    }
}
