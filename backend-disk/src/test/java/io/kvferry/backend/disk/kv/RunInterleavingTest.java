// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.DiskConnectorProvider;
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

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;

/// Engines on one folder at its capacity, with prompts that diverge anywhere, also within a file of
/// several blocks, while files are damaged and deleted and engines restart with other secrets. The
/// model verifies every byte of every prefix, and the engines have no prefix cache.
class RunInterleavingTest {
    private static final int BLOCK = 4;
    private static final int RUN = 4;
    private static final int ENGINES = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @TempDir Path folder;

    private Engine open(int number, int secret) {
        var provider = new DiskConnectorProvider();
        var options = new HashMap<String, Object>();
        options.put("shared_storage_path", folder.resolve("kv").toString());
        options.put("run_blocks", RUN);
        options.put("reserve", 0);
        options.put("capacity", 30 * 20_480);
        options.put("scan_interval", 1 + number + "s"); // else they share what they know
        options.put("direct", number == 0 ? "auto" : "off");
        if (secret > 0) {
            options.put("secret_file", folder.resolve("secret-" + secret).toString());
        }
        var config = ConnectorConfig.of(provider.name(), KvRole.BOTH, "e" + number, options);
        return Engine.open(
                        EngineConfig.of(
                                        new SyntheticProvider(),
                                        Path.of(""),
                                        Map.of("verify", "all"))
                                .blockTokens(BLOCK)
                                .blockCount(256)
                                .prefixCache(false)
                                .worldSize(2)
                                .kvConnector(provider, recomputing(config)))
                .start();
    }

    static ConnectorConfig recomputing(ConnectorConfig config) {
        return new ConnectorConfig(
                config.connector(),
                config.role(),
                config.engineId(),
                config.bufferDevice(),
                config.bufferSizeBytes(),
                config.rank(),
                config.parallelSize(),
                config.ip(),
                config.port(),
                LoadFailurePolicy.RECOMPUTE,
                config.extra());
    }

    /// Up to three runs, more or less; two prompts have in common what comes before the earlier of
    /// their partings.
    private static int[] prompt(SplittableRandom random) {
        int blocks = random.nextInt(1, 3 * RUN + 2);
        int parting = random.nextInt(3 * RUN);
        int word = random.nextInt(3);
        var tokens = new int[blocks * BLOCK + random.nextInt(BLOCK) + 1];
        Arrays.setAll(tokens, i -> 1 + i + (i >= parting * BLOCK ? 100 * word : 0));
        return tokens;
    }

    private void damage(SplittableRandom random) throws IOException {
        var files = BlockFiles.under(folder.resolve("kv"));
        if (files.isEmpty()) {
            return;
        }
        Path file = files.get(random.nextInt(files.size()));
        try {
            byte[] bytes = Files.readAllBytes(file);
            switch (random.nextInt(3)) {
                case 0 -> Files.delete(file);
                case 1 -> Files.write(file, Arrays.copyOf(bytes, random.nextInt(bytes.length)));
                default -> {
                    bytes[random.nextInt(bytes.length)] ^= 1;
                    Files.write(file, bytes);
                }
            }
        } catch (NoSuchFileException _) {
            // an engine evicted it meanwhile
        }
    }

    @Test
    @Timeout(600)
    void everyTokenIsRightWhateverHappensToTheFiles() throws Exception {
        run(System.nanoTime(), 60);
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void everyTokenIsRightForLong() throws Exception {
        for (int i = 0; i < Integer.getInteger("kvferry.soak.seeds", 30); i++) {
            run(System.nanoTime(), 300);
        }
    }

    private void run(long seed, int rounds) throws Exception {
        for (int secret = 1; secret < 3; secret++) {
            Files.writeString(
                    folder.resolve("secret-" + secret), "secret number " + secret + " of a fleet");
        }
        var random = new SplittableRandom(seed);
        var engines = new ArrayList<Engine>();
        long found = 0;
        try {
            for (int i = 0; i < ENGINES; i++) {
                engines.add(open(i, 0));
            }
            for (int round = 0; round < rounds; round++) {
                var handles =
                        engines.stream()
                                .map(engine ->
                                        engine.submit(
                                                GenerationRequest.of(
                                                        prompt(random), SamplingParams.greedy(6))))
                                .toList();
                for (var handle : handles) {
                    var outcome = handle.await(Deadline.in(PATIENCE)).orElseThrow();
                    assertThat(outcome)
                            .as("seed %d, round %d", seed, round)
                            .isInstanceOf(Outcome.Finished.class);
                    found += ((Outcome.Finished) outcome).usage().cachedTokens();
                }
                int what = random.nextInt(10);
                if (what < 4) {
                    damage(random);
                } else if (what == 4) {
                    int i = random.nextInt(ENGINES);
                    engines.get(i).close();
                    engines.set(i, open(i, random.nextInt(3)));
                }
            }
            assertThat(found).as("tokens that came from the folder, seed %d", seed).isPositive();
        } finally {
            engines.forEach(Engine::close);
        }
    }
}
