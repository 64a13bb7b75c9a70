// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.p2p.testkit.EngineChild.PROMPT_TOKENS;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decode;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decoder;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.generate;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefill;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefiller;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.EngineRuns;
import io.kvferry.backend.mooncake.p2p.testkit.EngineChild;
import io.kvferry.engine.RequestHandle;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// kill -9 of one of two whole engines under load: every request of the other one ends with the
/// right tokens, all its blocks come back, and the next start is served. As in [KillTest], each
/// short form takes one way, the long ones both.
class EngineKillTest {
    private static final int SHORT = 2;
    private static final int LONG = 50; // in both roles: a hundred kills
    private static final int REQUESTS = 12; // about as many as the pools hold at a time

    @Test
    void aKilledPrefillerCostsNoToken() throws IOException {
        killPrefillers(SHORT, true); // by cross memory attach
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Tag("soak")
    @Timeout(1800)
    void manyKilledPrefillersCostNoToken(boolean crossMemory) throws IOException {
        killPrefillers(LONG, crossMemory);
    }

    @Test
    void aKilledDecoderLeavesNoBlockHeld() throws IOException {
        killDecoders(SHORT, false); // over TCP
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Tag("soak")
    @Timeout(1800)
    void manyKilledDecodersLeaveNoBlockHeld(boolean crossMemory) throws IOException {
        killDecoders(LONG, crossMemory);
    }

    private static int[][] expected() {
        try (var alone = alone(Map.of())) {
            var tokens = new int[REQUESTS][];
            for (int i = 0; i < REQUESTS; i++) {
                tokens[i] = finished(generate(alone, prompt(i, PROMPT_TOKENS))).tokens();
            }
            return tokens;
        }
    }

    private static void killPrefillers(int rounds, boolean crossMemory) throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        var expected = expected();
        int port = freePort(); // the same for every start, as an operator would have it
        int loaded = 0;
        long through = 1;
        try (var d = decoder(1, Map.of(), Map.of("cross_memory", crossMemory))) {
            for (int round = 0; round < rounds; round++) {
                try (var p = new EngineChild("prefill", port)) {
                    assertThat(p.hear()).isEqualTo("READY");
                    long begun = System.nanoTime();
                    var requests = new ArrayList<RequestHandle>();
                    for (int i = 0; i < REQUESTS; i++) {
                        var name = "r" + round + "-" + i;
                        p.tell(i, name);
                        requests.add(decode(d, prompt(i, PROMPT_TOKENS), port, name));
                    }
                    // In every second round none need be through: on a busy machine all may be
                    // before this thread hears of the first. The kill comes at a moment at which
                    // some were through in the round before.
                    if (round % 2 == 0) {
                        for (int i = 1 + random.nextInt(REQUESTS - 1); i > 0; i--) {
                            finished(requests.get(i - 1));
                        }
                        through = System.nanoTime() - begun;
                        pause(random);
                    } else {
                        LockSupport.parkNanos(
                                begun + random.nextLong(2 * through) - System.nanoTime());
                    }
                    p.kill();
                    for (int i = 0; i < REQUESTS; i++) {
                        var outcome = finished(requests.get(i));
                        assertThat(outcome.tokens()).isEqualTo(expected[i]);
                        loaded += loaded(outcome) > 0 ? 1 : 0;
                    }
                    assertNothingHeld(d);
                } catch (AssertionError e) {
                    throw new AssertionError("seed " + seed + " round " + round, e);
                }
            }
        }
        System.out.println(
                "killed "
                        + rounds
                        + " prefill engines, "
                        + loaded
                        + " of "
                        + rounds * REQUESTS
                        + " prompts were handed over");
        assertSomeWereHandedOver(loaded, rounds);
    }

    private static void killDecoders(int rounds, boolean crossMemory) throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        var expected = expected();
        int port = freePort();
        int heard = 0;
        int loaded = 0;
        try (var p =
                prefiller(
                        port,
                        1,
                        Map.of(),
                        Map.of("abort_request_timeout", "10s", "cross_memory", crossMemory))) {
            for (int round = 0; round < rounds; round++) {
                try (var d = new EngineChild("decode", port)) {
                    assertThat(d.hear()).isEqualTo("READY");
                    var requests = new ArrayList<RequestHandle>();
                    for (int i = 0; i < REQUESTS; i++) {
                        var name = i + "-" + round;
                        d.tell(i, name);
                        requests.add(prefill(p, prompt(i, PROMPT_TOKENS), name));
                    }
                    for (int i = 1 + random.nextInt(REQUESTS - 1); i > 0; i--) { // through
                        var line = d.hear();
                        int which = Integer.parseInt(line.substring(0, line.indexOf('-')));
                        assertThat(line).endsWith(" " + Arrays.toString(expected[which]));
                        loaded += line.contains(" loaded 0 ") ? 0 : 1;
                        heard++;
                    }
                    pause(random);
                    d.kill();
                    requests.forEach(EngineRuns::finished);
                    assertNothingHeld(p);
                } catch (AssertionError e) {
                    throw new AssertionError("seed " + seed + " round " + round, e);
                }
            }
        }
        System.out.println(
                "killed "
                        + rounds
                        + " decode engines after "
                        + heard
                        + " ("
                        + loaded
                        + " with KV of the prefiller)"
                        + " of "
                        + rounds * REQUESTS
                        + " prompts");
        if (rounds == LONG) { // a decoder that is slow to start finds its first prompts let go of
            assertSomeWereHandedOver(loaded, rounds);
        }
    }

    /// Without this, engines that compute everything themselves would pass. A short run may kill at
    /// moments at which everything is through.
    private static void assertSomeWereHandedOver(int loaded, int rounds) {
        assertThat(loaded).as("handed over").isPositive();
        if (rounds == LONG) {
            assertThat(loaded).as("handed over").isLessThan(rounds * REQUESTS);
        }
    }

    private static void pause(Random random) {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(30_000)));
    }
}
