// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.BLOCKS_PER_REQUEST;
import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.PROMPT_TOKENS;
import static io.kvferry.backend.mooncake.p2p.testkit.ChildEngine.SHAPE;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.ChildEngine;
import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// kill -9 of either engine at random moments of transfers under way. The short forms share the
/// ways that bytes take with those of [EngineKillTest], the long ones run both.
class KillTest {
    private static final int SHORT = 2;
    private static final int LONG = 50; // in both roles: a hundred kills
    private static final int REQUESTS = 12;
    private static final int FOREIGN = 99;

    @Test
    void aKilledPrefillerLeavesNoWrongByte() throws IOException {
        killPrefillers(SHORT, false); // over TCP
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Tag("soak")
    @Timeout(1800)
    void manyKilledPrefillersLeaveNoWrongByte(boolean crossMemory) throws IOException {
        killPrefillers(LONG, crossMemory);
    }

    @Test
    void aKilledDecoderLeavesNothingHeld() throws IOException {
        killDecoders(SHORT, true); // by cross memory attach
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Tag("soak")
    @Timeout(1800)
    void manyKilledDecodersLeaveNothingHeld(boolean crossMemory) throws IOException {
        killDecoders(LONG, crossMemory);
    }

    private static void killPrefillers(int rounds, boolean crossMemory) throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        int port = freePort(); // the same for every start, as an operator would have it
        int completed = 0;
        try (var d =
                new TestEngine(SHAPE, KvRole.CONSUMER, "d", Map.of("cross_memory", crossMemory))) {
            for (int round = 0; round < rounds; round++) {
                try (var p = new ChildEngine(KvRole.PRODUCER, "p", port)) {
                    var bootstrap = p.bootstrap();
                    var requests = new ArrayList<FakeRequest>();
                    var loads = new ArrayList<TransferId>();
                    for (int i = 0; i < REQUESTS; i++) {
                        var name = "r" + round + "-" + i;
                        p.tell("prefill %s %d %d", name, i, i * BLOCKS_PER_REQUEST);
                        requests.add(
                                d.request(
                                        name,
                                        PROMPT_TOKENS,
                                        i * BLOCKS_PER_REQUEST,
                                        prefillAt(bootstrap, "p", name)));
                        loads.add(d.beginDecode(requests.get(i), 0));
                    }
                    for (int i = some(random); i > 0; i--) { // through
                        assertThat(d.await(loads.get(i - 1)))
                                .isInstanceOf(Completion.Completed.class);
                    }
                    LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(30_000)));
                    p.kill();
                    for (int i = 0; i < REQUESTS; i++) {
                        if (d.await(loads.get(i)) instanceof Completion.Completed) {
                            completed++;
                            d.assertHolds(requests.get(i), 0, i);
                        } else { // the engine gives the blocks to somebody else at once
                            d.compute(requests.get(i), FOREIGN);
                        }
                    }
                    for (int i = 0; i < REQUESTS; i++) {
                        if (!(d.await(loads.get(i)) instanceof Completion.Completed)) {
                            d.assertHolds(requests.get(i), 0, FOREIGN);
                        }
                    }
                } catch (AssertionError e) {
                    throw new AssertionError("seed " + seed + " round " + round, e);
                }
            }
        }
        System.out.println(
                "killed "
                        + rounds
                        + " prefillers, "
                        + completed
                        + " of "
                        + rounds * REQUESTS
                        + " loads done");
        assertSomeWereCutOff(completed, rounds);
    }

    /// At least one, not all.
    private static int some(Random random) {
        return 1 + random.nextInt(REQUESTS - 1);
    }

    /// A short run may kill at moments at which everything is through.
    private static void assertSomeWereCutOff(int completed, int rounds) {
        if (rounds == LONG) {
            assertThat(completed).as("of those under way").isLessThan(rounds * REQUESTS);
        }
    }

    private static void killDecoders(int rounds, boolean crossMemory) throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        int completed = 0;
        long through = 1;
        try (var p =
                new TestEngine(SHAPE, KvRole.PRODUCER, "p", Map.of("cross_memory", crossMemory))) {
            for (int round = 0; round < rounds; round++) {
                try (var d = new ChildEngine(KvRole.CONSUMER, "d", 0)) {
                    d.hear("READY ");
                    long begun = System.nanoTime();
                    var holds = new LinkedHashMap<String, TransferId>();
                    for (int i = 0; i < REQUESTS; i++) {
                        var name = "r" + round + "-" + i;
                        d.tell("pull %s p %s %d %d", p.bootstrap, name, i, i * BLOCKS_PER_REQUEST);
                        var request =
                                p.request(
                                        name,
                                        PROMPT_TOKENS,
                                        i * BLOCKS_PER_REQUEST,
                                        decodeElsewhere(name));
                        holds.put(name, p.prefill(request, i));
                    }
                    // In every second round none need be through: a busy machine may have all of
                    // them before this process hears of the first. The kill comes at a moment at
                    // which some were through in the round before.
                    boolean blind = round % 2 == 1;
                    for (int i = blind ? 0 : some(random); i > 0; i--) {
                        assertThat(d.hear("r" + round + "-")).endsWith("Completed");
                    }
                    if (!blind) {
                        through = System.nanoTime() - begun;
                    }
                    LockSupport.parkNanos(
                            blind
                                    ? begun + random.nextLong(2 * through) - System.nanoTime()
                                    : TimeUnit.MICROSECONDS.toNanos(random.nextInt(30_000)));
                    d.kill();
                    for (var hold :
                            holds.values()) { // what was never asked for ends with its lease
                        if (p.resultNow(hold).isEmpty()) {
                            p.revoke(hold);
                        }
                        completed += p.await(hold) instanceof Completion.Completed ? 1 : 0;
                    }
                } catch (AssertionError e) {
                    throw new AssertionError("seed " + seed + " round " + round, e);
                }
            }
        }
        System.out.println(
                "killed "
                        + rounds
                        + " decoders, "
                        + completed
                        + " of "
                        + rounds * REQUESTS
                        + " prefills handed over");
        assertSomeWereCutOff(completed, rounds);
    }
}
