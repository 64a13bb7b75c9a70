// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decode;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.decoder;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.generate;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefill;
import static io.kvferry.backend.mooncake.p2p.testkit.EnginePair.prefiller;
import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.kv.FinishReason;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Whole engines: tokens are those of one engine alone, every loaded byte is verified, and no block
/// stays behind.
class EngineHandOverTest {
    private static final int TOKENS = 150;

    @ParameterizedTest
    @CsvSource({"1,1,1", "1,1,2", "1,2,1", "2,1,1", "2,4,1", "4,2,1", "2,1,2", "1,2,2"})
    void handsOverWhatAnotherNumberOfRanksHeld(int prefillTp, int decodeTp, int groups)
            throws IOException {
        int port = freePort();
        var model = Map.<String, Object>of("groups", (long) groups);
        try (var p = prefiller(port, prefillTp, model);
                var d = decoder(decodeTp, model);
                var alone = alone(model)) {
            var pairs = new ArrayList<RequestHandle>();
            for (int i = 0; i < 6; i++) {
                prefill(p, prompt(i, TOKENS + i), "x" + i);
                pairs.add(decode(d, prompt(i, TOKENS + i), port, "x" + i));
            }
            for (int i = 0; i < 6; i++) {
                var outcome = finished(pairs.get(i));
                assertThat(outcome.tokens())
                        .isEqualTo(finished(generate(alone, prompt(i, TOKENS + i))).tokens());
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS + i - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
    }

    @Test
    void anEndTokenRightAfterThePromptLeavesNothingHeld() throws IOException {
        int port = freePort();
        var model = Map.<String, Object>of("eos_every", 1L);
        try (var p = prefiller(port, 1, model);
                var d = decoder(1, model)) {
            var decode = decode(d, prompt(1, TOKENS), port, "x");
            assertThat(finished(prefill(p, prompt(1, TOKENS), "x")).reason())
                    .isEqualTo(FinishReason.STOP);
            var outcome = finished(decode);
            assertThat(outcome.reason()).isEqualTo(FinishReason.STOP);
            assertThat(outcome.tokens()).isEmpty();
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
    }

    @Test
    void whatTheOtherSideNeverClaimsExpiresOnBothSides() throws IOException {
        int port = freePort();
        try (var p = prefiller(port, 1, Map.of(), Map.of("abort_request_timeout", "500ms"));
                var d = decoder(1, Map.of());
                var alone = alone(Map.of())) {
            finished(prefill(p, prompt(1, TOKENS), "nobody fetches"));
            assertNothingHeld(p);
            for (var transfer : List.of("nobody fetches", "nobody prefills")) {
                var outcome = finished(decode(d, prompt(1, TOKENS), port, transfer));
                assertThat(outcome.tokens())
                        .isEqualTo(finished(generate(alone, prompt(1, TOKENS))).tokens());
                assertThat(loaded(outcome)).as(transfer).isZero();
                assertNothingHeld(d);
            }
            assertNothingHeld(p);
        }
    }

    /// Either side at a random moment between submission and end: by then the request waits for the
    /// other side, is computed in chunks, is being written, or generates.
    @ParameterizedTest
    @CsvSource({"true,false", "false,true", "true,true"})
    void abortsAtAnyPointLeaveNothingHeld(boolean atPrefiller, boolean atDecoder)
            throws IOException {
        int port = freePort();
        var model = Map.<String, Object>of("step_time", "1ms");
        long seed = System.nanoTime();
        var random = new Random(seed);
        try (var p = prefiller(port, 1, model, Map.of("abort_request_timeout", "3s"));
                var d = decoder(1, model);
                var alone = alone(model)) {
            for (int i = 0; i < 30; i++) {
                boolean prefillFirst = random.nextBoolean();
                var name = "x" + i;
                var first = submit(prefillFirst, p, d, port, i, name);
                pause(random, 4_000);
                var second = submit(!prefillFirst, p, d, port, i, name);
                pause(random, 12_000);
                if (atPrefiller) {
                    (prefillFirst ? first : second).abort();
                }
                if (atDecoder) {
                    (prefillFirst ? second : first).abort();
                }
            }
            // An aborted side must not make the other one wait: what follows is served.
            prefill(p, prompt(99, TOKENS), "after");
            assertThat(finished(decode(d, prompt(99, TOKENS), port, "after")).tokens())
                    .as("seed %d", seed)
                    .isEqualTo(finished(generate(alone, prompt(99, TOKENS))).tokens());
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
    }

    private static RequestHandle submit(
            boolean toPrefiller, Engine p, Engine d, int port, int seed, String name) {
        return toPrefiller
                ? prefill(p, prompt(seed, TOKENS), name)
                : decode(d, prompt(seed, TOKENS), port, name);
    }

    private static void pause(Random random, int mostMicros) {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(mostMicros)));
    }

    @Test
    void eitherEngineMayStartAnewAtTheSameAddress() throws IOException {
        int port = freePort();
        try (var alone = alone(Map.of())) {
            var p = prefiller(port, 2, Map.of());
            var d = decoder(1, Map.of());
            try {
                for (int i = 0; i < 6; i++) {
                    prefill(p, prompt(i, TOKENS), "x" + i);
                    var outcome = finished(decode(d, prompt(i, TOKENS), port, "x" + i));
                    assertThat(outcome.tokens())
                            .isEqualTo(finished(generate(alone, prompt(i, TOKENS))).tokens());
                    if (i % 2 == 0) {
                        p.close();
                        p = prefiller(port, 2, Map.of());
                        // What the decoder knew of the old one costs at most this load.
                        prefill(p, prompt(i, TOKENS), "first" + i);
                        finished(decode(d, prompt(i, TOKENS), port, "first" + i));
                    } else {
                        d.close();
                        d = decoder(1, Map.of());
                    }
                    prefill(p, prompt(i, TOKENS), "again" + i);
                    assertThat(loaded(finished(decode(d, prompt(i, TOKENS), port, "again" + i))))
                            .isGreaterThanOrEqualTo(TOKENS - 1);
                }
                assertNothingHeld(d);
            } finally {
                p.close();
                d.close();
            }
        }
    }
}
