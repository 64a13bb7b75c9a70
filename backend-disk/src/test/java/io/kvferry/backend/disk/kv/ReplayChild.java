// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

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

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// What a child JVM of [ReplayTest] runs: an engine without a prefix cache of its own. It answers a
/// line of block ids with how many of them, from the front, came from the folder. The model
/// verifies every byte.
final class ReplayChild {
    private static final int BLOCK = 4;

    /// Blocks of the engine for one of the trace; they share a file.
    private static final int RUN = 2;

    /// Header and payload, both rounded up to 4 KiB.
    private static final long FILE_BYTES = 8192;

    private static final Duration LIMIT = Duration.ofMinutes(10);

    private ReplayChild() {}

    static Process start(Path root, int capacity) throws IOException {
        return new ProcessBuilder(
                        ProcessHandle.current().info().command().orElseThrow(),
                        "--enable-native-access=ALL-UNNAMED",
                        "-XX:TieredStopAtLevel=1",
                        "-XX:+UseSerialGC",
                        "-Xmx256m",
                        "-cp",
                        System.getProperty(
                                "surefire.test.class.path", System.getProperty("java.class.path")),
                        ReplayChild.class.getName(),
                        root.toString(),
                        capacity * FILE_BYTES + "")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    /// @param args root, capacity in bytes
    public static void main(String[] args) throws IOException {
        var provider = new DiskConnectorProvider();
        var options =
                Map.<String, Object>of(
                        "path",
                        args[0],
                        "capacity",
                        Long.parseLong(args[1]),
                        "reserve",
                        0,
                        "rehearsal",
                        false,
                        "run_blocks",
                        RUN,
                        "recency",
                        "1ms",
                        "scan_interval",
                        "20ms");
        // Another process may evict a block between its lookup and its load.
        var connector = ConnectorConfig.of(provider.name(), KvRole.BOTH, "e", options);
        var config =
                EngineConfig.of(
                                new SyntheticProvider(),
                                Path.of(""),
                                Map.of("layers", 1L, "kv_heads", 1L, "head_dim", 16L))
                        .blockTokens(BLOCK)
                        .blockCount(1024)
                        .stepTokens(1 << 14)
                        .prefixCache(false)
                        .kvConnector(provider, RunInterleavingTest.recomputing(connector));
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var engine = Engine.open(config).start()) {
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(serve(engine, line.split(" ")));
            }
        }
    }

    private static int serve(Engine engine, String[] ids) {
        var limit = Deadline.in(LIMIT);
        var outcome =
                engine.submit(GenerationRequest.of(prompt(List.of(ids)), SamplingParams.greedy(1)))
                        .await(limit)
                        .orElseThrow();
        if (!(outcome instanceof Outcome.Finished finished)) {
            throw new IllegalStateException("not served: " + outcome);
        }
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        while (engine.stats().leasedBlocks() > 0) {
            if (limit.passed()) {
                throw new IllegalStateException("not saved");
            }
            LockSupport.parkNanos(200_000);
        }
        return finished.usage().cachedTokens() / (BLOCK * RUN);
    }

    /// Whole blocks of tokens that tell the ids apart, and one token behind them.
    private static int[] prompt(List<String> ids) {
        int length = BLOCK * RUN;
        var prompt = new int[ids.size() * length + 1];
        for (int i = 0; i < ids.size(); i++) {
            for (int at = 0; at < length; at++) {
                prompt[i * length + at] = 10 + Integer.parseInt(ids.get(i));
            }
        }
        prompt[prompt.length - 1] = 1;
        return prompt;
    }
}
