// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.SOON;
import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.GROUPS;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.PREFIX;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.submit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.cluster.RealCluster;
import io.kvferry.engine.Outcome;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// Engines of two JVMs share the blocks in a real Mooncake cluster. Their synthetic model verifies
/// every byte that it did not write itself.
@Tag("interop")
@Timeout(240)
class RealClusterEnginesTest {
    private static final int PROMPTS = 3;
    private static final int SIGTERM = 128 + 15;

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
        try (var alone = alone(GROUPS)) {
            for (int seed = 0; seed < PROMPTS; seed++) {
                expected.add(Arrays.toString(finished(submit(alone, seed)).tokens()));
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
        var options =
                Map.<String, Object>of("store", "mooncake://" + arguments[0], "rpc_timeout", "30s");
        try (var engine = StoreRuns.engine("child", 1, GROUPS, options)) {
            for (int seed = 0; seed < PROMPTS; seed++) {
                Outcome.Finished outcome = finished(submit(engine, seed));
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
