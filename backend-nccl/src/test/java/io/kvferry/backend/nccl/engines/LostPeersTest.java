// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
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

import io.kvferry.backend.nccl.TestPlane;
import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Peers that are aborted, restart, never answer or never ask: every request ends, and neither
/// blocks nor staging memory are leaked.
class LostPeersTest extends OverEachPlane {
    private static final long ROOM = 64 << 20;

    LostPeersTest(TestPlane plane) {
        super(plane);
    }

    @Test
    @DisplayName("P14 P23 what nobody asks for expires on both sides")
    void whatNobodyAsksForExpiresOnBothSides() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("hold_timeout", "300ms");
        var dOptions = options("PUT_ASYNC", dPort);
        dOptions.put("staged_timeout", "300ms");
        dOptions.put("receive_timeout", "300ms");
        dOptions.put("transfer_timeout", "1s");
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), dOptions, pool)) {
            finished(prefill(p, prompt(1, TOKENS), "pushed, not asked for", dPort));
            finished(prefill(p, prompt(2, TOKENS), "held, not asked for", 0));
            assertNothingHeld(p);
            assertNothingStaged(pool);
            for (var transfer :
                    new String[] {"pushed, not asked for", "held, not asked for", "never made"}) {
                var outcome = finished(decode(d, prompt(1, TOKENS), transfer, pPort));
                assertThat(loaded(outcome)).as(transfer).isZero();
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(1, TOKENS)));
            }
            assertNothingHeld(d);
        }
    }

    /// Either side at a random moment between submission and end.
    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,true,false", "PUT_ASYNC,false,true", "PUT,true,true", "GET,true,true"})
    void abortsAtAnyPointLeaveNothingBehind(String mode, boolean atPrefiller, boolean atDecoder)
            throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var model = Map.<String, Object>of("step_time", "1ms");
        var pOptions = options(mode, pPort);
        pOptions.put("hold_timeout", "3s");
        var dOptions = options(mode, dPort);
        dOptions.put("receive_timeout", "3s");
        dOptions.put("staged_timeout", "3s");
        long seed = System.nanoTime();
        var random = new Random(seed);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(model);
                var p = prefiller(1, model, pOptions);
                var d = decoder(1, model, dOptions, pool)) {
            for (int i = 0; i < 30; i++) {
                boolean prefillFirst = random.nextBoolean();
                var name = "x" + i;
                var first = submit(prefillFirst, p, d, pPort, dPort, i, name);
                pause(random, 4_000);
                var second = submit(!prefillFirst, p, d, pPort, dPort, i, name);
                pause(random, 12_000);
                if (atPrefiller) {
                    (prefillFirst ? first : second).abort();
                }
                if (atDecoder) {
                    (prefillFirst ? second : first).abort();
                }
            }
            // An aborted side must not make the other one wait: what follows is served.
            finished(prefill(p, prompt(99, TOKENS), "after", dPort));
            assertThat(tokens(finished(decode(d, prompt(99, TOKENS), "after", pPort))))
                    .as("seed %d", seed)
                    .isEqualTo(tokensAlone(alone, prompt(99, TOKENS)));
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    private static RequestHandle submit(
            boolean toPrefiller, Engine p, Engine d, int pPort, int dPort, int seed, String name) {
        return toPrefiller
                ? prefill(p, prompt(seed, TOKENS), name, dPort)
                : decode(d, prompt(seed, TOKENS), name, pPort);
    }

    private static void pause(Random random, int mostMicros) {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(mostMicros)));
    }

    @Test
    @DisplayName("P9 either engine may start anew at the same address")
    void eitherEngineMayStartAnewAtTheSameAddress() throws IOException {
        int pPort = freePorts(2);
        int dPort = freePorts(2);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of())) {
            var p = prefiller(2, Map.of(), options("PUT_ASYNC", pPort));
            var d = decoder(2, Map.of(), options("PUT_ASYNC", dPort), pool);
            try {
                for (int i = 0; i < 6; i++) {
                    int[] prompt = prompt(i, TOKENS);
                    var lost = finished(prefill(p, prompt, "lost" + i, dPort)).kvParams();
                    if (i % 2 == 0) {
                        finished(prefill(p, prompt, "held" + i, 0));
                        var held =
                                finished(prefill(p, prompt(i + 50, TOKENS), "gone" + i, 0))
                                        .kvParams();
                        p.close();
                        p = prefiller(2, Map.of(), options("PUT_ASYNC", pPort));
                        // Held by the old one: the new one says so at once, and does not make
                        // anybody wait for a prompt that it never heard of.
                        long begin = System.nanoTime();
                        var outcome = finished(decode(d, prompt(i + 50, TOKENS), held));
                        assertThat(loaded(outcome)).isZero();
                        assertThat(Duration.ofNanos(System.nanoTime() - begin))
                                .isLessThan(Duration.ofSeconds(40));
                    } else {
                        d.close();
                        assertNothingStaged(pool);
                        d = decoder(2, Map.of(), options("PUT_ASYNC", dPort), pool);
                    }
                    var old = finished(decode(d, prompt, lost));
                    assertThat(tokens(old)).isEqualTo(tokensAlone(alone, prompt));
                    finished(prefill(p, prompt, "again" + i, dPort));
                    var outcome = finished(decode(d, prompt, "again" + i, pPort));
                    assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                    assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
                }
                assertNothingHeld(d);
                assertNothingStaged(pool);
            } finally {
                p.close();
                d.close();
            }
        }
    }

    @Test
    @DisplayName("P8 a decoder that never answers delays one step and no other")
    void aDecoderThatNeverAnswersDelaysOneStepAndNoOther() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("push_timeout", "1s");
        try (var silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool)) {
            long begin = System.nanoTime();
            for (int i = 0; i < 4; i++) {
                finished(prefill(p, prompt(0, TOKENS), "nobody" + i, silent.getLocalPort()));
            }
            // Four times the limit of a push, which a busy machine may need for the other three.
            long penalties = (System.nanoTime() - begin) / Duration.ofSeconds(4).toNanos();
            assertThat(connections(silent))
                    .as("nothing is offered again to a decoder that did not answer in time")
                    .isBetween(1, 1 + (int) penalties);
            finished(prefill(p, prompt(9, TOKENS), "x", dPort));
            var outcome = finished(decode(d, prompt(9, TOKENS), "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(9, TOKENS)));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            for (int i = 0; i < 4; i++) {
                finished(decode(d, prompt(0, TOKENS), "nobody" + i, pPort));
            }
            assertNothingHeld(p);
        }
    }

    /// They wait in the backlog. The thread that connects may be later than the step that gave up
    /// its push.
    private static int connections(ServerSocket server) throws IOException {
        server.setSoTimeout((int) P2pEngines.SOON.toMillis());
        for (int count = 0; ; count++) {
            try {
                server.accept().close();
                server.setSoTimeout(200);
            } catch (SocketTimeoutException e) {
                return count;
            }
        }
    }

    /// The prompt is never computed: the prefiller fails the transfer after its own limit, and
    /// keeps nothing.
    @Test
    @DisplayName("P23 a pull that waits too long is refused")
    void aPullThatWaitsTooLongIsRefused() throws IOException {
        int pPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("receive_timeout", "1s");
        pOptions.put("transfer_timeout", "1s");
        var dOptions = options("PUT_ASYNC", 0);
        dOptions.put("receive_timeout", "300s");
        try (var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), dOptions, StagingPool.NONE)) {
            int[] prompt = prompt(1, TOKENS);
            var outcome = finished(decode(d, prompt, "never", pPort));
            assertThat(loaded(outcome)).isZero();
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertNothingHeld(p);
        }
    }
}
