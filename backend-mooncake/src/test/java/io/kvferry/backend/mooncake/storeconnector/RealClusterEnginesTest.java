// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.cluster.RealCluster;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// Engines of two JVMs share the blocks in a real Mooncake cluster. Their synthetic model verifies
/// every byte that it did not write itself.
@Tag("interop")
@Timeout(240)
class RealClusterEnginesTest {
    private static final int TOKENS = 150;
    private static final int PREFIX = TOKENS / 16 * 16;
    private static final int PROMPTS = 3;
    private static final Duration SOON = Duration.ofSeconds(55);
    private static final int SIGTERM = 128 + 15;

    private static EngineConfig config() {
        return EngineConfig.of(
                        new SyntheticProvider(), Path.of("."), Map.of("kv_heads", 4L, "groups", 2L))
                .worldSize(1)
                .blockCount(256)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    private static Outcome.Finished run(Engine engine, int seed) {
        var prompt = new int[TOKENS];
        for (int i = 0; i < TOKENS; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        var outcome =
                engine.submit(
                                GenerationRequest.of(prompt, SamplingParams.greedy(8))
                                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE))
                        .await(Deadline.in(SOON));
        return (Outcome.Finished) outcome.orElseThrow();
    }

    private static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    private static Process child(RealCluster cluster) throws IOException {
        return new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "--enable-native-access=ALL-UNNAMED",
                        "-Xmx256m",
                        "-cp",
                        System.getProperty("java.class.path"),
                        RealClusterEnginesTest.class.getName(),
                        cluster.master())
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
    }

    private static String line(BufferedReader lines) throws IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith("@ ")) {
                return line.substring(2);
            }
        }
        throw new IOException("the engine's process ended");
    }

    @Test
    void aSecondProcessReadsWhatTheFirstOneStoredAndBothEndOnSigterm() throws Exception {
        var expected = new ArrayList<String>();
        try (var alone = Engine.open(config()).start()) {
            for (int seed = 0; seed < PROMPTS; seed++) {
                expected.add(Arrays.toString(run(alone, seed).tokens()));
            }
        }
        try (var cluster = new RealCluster(64 << 20)) {
            for (int life = 0; life < 2; life++) {
                Process child = child(cluster);
                try (var lines = child.inputReader(StandardCharsets.UTF_8)) {
                    for (int seed = 0; seed < PROMPTS; seed++) {
                        int tokens = life == 0 ? 0 : PREFIX;
                        assertThat(line(lines)).isEqualTo(tokens + " " + expected.get(seed));
                    }
                    assertThat(line(lines)).isEqualTo("done");
                    child.destroy();
                    assertThat(child.waitFor(30, TimeUnit.SECONDS)).isTrue();
                    assertThat(child.exitValue()).isEqualTo(SIGTERM);
                } finally {
                    child.destroyForcibly();
                }
            }
        }
    }

    /// The child's side: runs the prompts, and waits for its end.
    public static void main(String[] arguments) throws Exception {
        var connector =
                ConnectorConfig.of(
                        MooncakeStoreConnectorProvider.NAME,
                        KvRole.BOTH,
                        "child",
                        Map.of("store", "mooncake://" + arguments[0], "rpc_timeout", "30s"));
        try (var engine =
                Engine.open(config().kvConnector(new MooncakeStoreConnectorProvider(), connector))
                        .start()) {
            for (int seed = 0; seed < PROMPTS; seed++) {
                Outcome.Finished outcome = run(engine, seed);
                System.out.println(
                        "@ " + loaded(outcome) + " " + Arrays.toString(outcome.tokens()));
            }
            var limit = Deadline.in(SOON);
            while (engine.stats().leasedBlocks() > 0 && !limit.passed()) {
                Thread.sleep(5); // saves are under way
            }
            System.out.println("@ done");
            System.out.flush();
            while (System.in.read() >= 0) {
                // until it ends, or a signal comes
            }
        }
    }
}
