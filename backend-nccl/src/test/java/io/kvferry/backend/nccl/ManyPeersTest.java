// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// One engine with sixteen on the other side, of which one may be stuck.
class ManyPeersTest {
    private static final int PEERS = 16;
    private static final int EACH = 3;
    private static final int PROMPT = 60;

    private final List<Engine> engines = new ArrayList<>();
    private final List<Integer> ports = new ArrayList<>();

    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,HOST", "GET,HOST", "PUT_ASYNC,NCCL", "GET,NCCL"})
    void sixteenPrefillersShareOneDecoder(String mode, TestPlane plane) throws IOException {
        plane.begin();
        int onePort = freePorts(1);
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var one = decoder(plane, options(mode, onePort), pool)) {
            for (int i = 0; i < PEERS; i++) {
                ports.add(freePorts(1));
                engines.add(prefiller(plane, options(mode, ports.getLast())));
            }
            var decoded = new LinkedHashMap<RequestHandle, int[]>();
            for (int i = 0; i < EACH * PEERS; i++) {
                int[] prompt = prompt(i, PROMPT);
                prefill(engines.get(i % PEERS), prompt, "x" + i, onePort);
                decoded.put(decode(one, prompt, "x" + i, ports.get(i % PEERS)), prompt);
            }
            check(alone, decoded);
            assertNothingHeld(one);
            engines.forEach(P2pEngines::assertNothingHeld);
            assertNothingStaged(pool);
        } finally {
            engines.forEach(Engine::close);
        }
        plane.end();
    }

    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,HOST", "GET,HOST", "PUT_ASYNC,NCCL", "GET,NCCL"})
    void onePrefillerServesSixteenDecoders(String mode, TestPlane plane) throws IOException {
        plane.begin();
        int onePort = freePorts(1);
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var one = prefiller(plane, options(mode, onePort))) {
            for (int i = 0; i < PEERS; i++) {
                ports.add(freePorts(1));
                engines.add(decoder(plane, options(mode, ports.getLast()), pool));
            }
            var decoded = new LinkedHashMap<RequestHandle, int[]>();
            for (int i = 0; i < EACH * PEERS; i++) {
                int[] prompt = prompt(i, PROMPT);
                prefill(one, prompt, "x" + i, ports.get(i % PEERS));
                decoded.put(decode(engines.get(i % PEERS), prompt, "x" + i, onePort), prompt);
            }
            check(alone, decoded);
            assertNothingHeld(one);
            engines.forEach(P2pEngines::assertNothingHeld);
            assertNothingStaged(pool);
        } finally {
            engines.forEach(Engine::close);
        }
        plane.end();
    }

    /// The decoder takes the offer and then reads nothing. It costs one step its `push_timeout`.
    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,HOST", "PUT,HOST", "GET,HOST", "PUT_ASYNC,NCCL", "GET,NCCL"})
    void aDecoderThatIsStuckDoesNotHoldUpTheOthers(String mode, TestPlane plane)
            throws IOException {
        plane.begin();
        int onePort = freePorts(1);
        int stuckPort = freePorts(1);
        var pOptions = options(mode, onePort);
        pOptions.put("push_timeout", "300ms");
        var gated = new GatedP2p(plane);
        gated.shut();
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var one = prefiller(plane, pOptions);
                var stuck =
                        P2pEngines.open(
                                KvRole.CONSUMER,
                                1,
                                options(mode, stuckPort),
                                P2pEngines.host(pool),
                                gated)) {
            for (int i = 0; i < 3; i++) {
                ports.add(freePorts(1));
                engines.add(decoder(plane, options(mode, ports.getLast()), pool));
            }
            var waiting = new LinkedHashMap<RequestHandle, int[]>();
            var decoded = new LinkedHashMap<RequestHandle, int[]>();
            for (int i = 0; i < 12; i++) {
                int[] prompt = prompt(i, PROMPT);
                var transfer = "x" + i;
                int which = i % 4;
                if (which == 3) {
                    prefill(one, prompt, transfer, stuckPort);
                    waiting.put(decode(stuck, prompt, transfer, onePort), prompt);
                } else {
                    finished(prefill(one, prompt, transfer, ports.get(which)));
                    decoded.put(decode(engines.get(which), prompt, transfer, onePort), prompt);
                }
            }
            check(alone, decoded);
            assertThat(waiting.keySet())
                    .allSatisfy(handle ->
                            assertThat(handle.await(Deadline.in(Duration.ZERO))).isEmpty());
            gated.open();
            check(alone, waiting);
            assertNothingHeld(one);
            assertNothingHeld(stuck);
            engines.forEach(P2pEngines::assertNothingHeld);
            assertNothingStaged(pool);
        } finally {
            engines.forEach(Engine::close);
        }
        plane.end();
    }

    @ParameterizedTest
    @EnumSource
    void aPrefillerThatIsStuckDoesNotHoldUpTheOthers(TestPlane plane) throws IOException {
        plane.begin();
        var mode = "GET";
        int stuckPort = freePorts(1);
        var gated = new GatedP2p(plane);
        gated.shut();
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var one = decoder(plane, options(mode, 0), pool);
                var stuck =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                1,
                                options(mode, stuckPort),
                                HostServices.NONE,
                                gated)) {
            for (int i = 0; i < 3; i++) {
                ports.add(freePorts(1));
                engines.add(prefiller(plane, options(mode, ports.getLast())));
            }
            var waiting = new LinkedHashMap<RequestHandle, int[]>();
            var decoded = new LinkedHashMap<RequestHandle, int[]>();
            for (int i = 0; i < 12; i++) {
                int[] prompt = prompt(i, PROMPT);
                int which = i % 4;
                if (which == 3) {
                    prefill(stuck, prompt, "x" + i, 0);
                    waiting.put(decode(one, prompt, "x" + i, stuckPort), prompt);
                } else {
                    prefill(engines.get(which), prompt, "x" + i, 0);
                    decoded.put(decode(one, prompt, "x" + i, ports.get(which)), prompt);
                }
            }
            check(alone, decoded);
            assertThat(waiting.keySet())
                    .allSatisfy(handle ->
                            assertThat(handle.await(Deadline.in(Duration.ZERO))).isEmpty());
            gated.open();
            check(alone, waiting);
            assertNothingHeld(one);
            assertNothingHeld(stuck);
            engines.forEach(P2pEngines::assertNothingHeld);
        } finally {
            engines.forEach(Engine::close);
        }
        plane.end();
    }

    private static Engine prefiller(TestPlane plane, Map<String, Object> options) {
        return P2pEngines.open(
                KvRole.PRODUCER, 1, options, HostServices.NONE, new OverPlane(plane));
    }

    private static Engine decoder(TestPlane plane, Map<String, Object> options, StagingPool pool) {
        return P2pEngines.open(
                KvRole.CONSUMER, 1, options, P2pEngines.host(pool), new OverPlane(plane));
    }

    private static void check(Engine alone, Map<RequestHandle, int[]> decoded) {
        decoded.forEach((handle, prompt) -> {
            var outcome = finished(handle);
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(PROMPT - 1);
        });
    }
}
