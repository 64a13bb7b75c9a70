// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.Engines;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.Workers;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.EventSink;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// An engine without a prefix cache of its own, in a JVM of its own. It answers a line of block ids
/// with how many of them, from the front, its connector delivered. The model verifies every byte.
final class ReplayChild {
    private static final Duration LIMIT = Duration.ofMinutes(1);

    private ReplayChild() {}

    /// @param args config JSON of the connector, blocks of the longest request, name of the
    ///   [BlockCut], whether the rank has a process of its own
    public static void main(String[] args) throws IOException {
        var cut = BlockCut.valueOf(args[2]);
        int blocks = Integer.parseInt(args[1]) * cut.blocks() + 1;
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
            var connector = kvferry.kv(args[0]);
            var config =
                    EngineConfig.of(new SyntheticProvider(), Path.of("."), cut.model())
                            .kvConnector(connector.provider(), connector.config())
                            .host(kvferry.services())
                            .blockTokens(BlockCut.TOKENS)
                            .blockCount(4 * blocks) // while earlier requests are being saved
                            .stepTokens(1 << 16)
                            .prefixCache(false);
            if (Boolean.parseBoolean(args[3])) {
                config.workers(new Workers.ChildProcesses(List.of("-Xmx256m"), ""));
            }
            try (var engine = Engine.open(config).start()) {
                ChildJvm.ready();
                for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                    System.out.println(serve(engine, line, cut));
                }
            }
        }
    }

    private static int serve(Engine engine, String ids, BlockCut cut) {
        var outcome =
                engine.submit(
                                GenerationRequest.of(
                                        prompt(ids.split(" "), cut), SamplingParams.greedy(1)))
                        .await(Deadline.in(LIMIT))
                        .orElseThrow();
        if (!(outcome instanceof Outcome.Finished finished)) {
            throw new IllegalStateException("not served: " + outcome);
        }
        // In the trace whoever continues a prompt does so minutes later.
        Engines.awaitIdle(engine, Deadline.in(LIMIT));
        return finished.usage().cachedTokens() / (BlockCut.TOKENS * cut.blocks());
    }

    /// Whole blocks of tokens that tell the ids apart, and one token behind them.
    private static int[] prompt(String[] ids, BlockCut cut) {
        int length = BlockCut.TOKENS * cut.blocks();
        var prompt = new int[ids.length * length + 1];
        for (int i = 0; i < ids.length; i++) {
            int id = Integer.parseInt(ids[i]);
            for (int at = 0; at < length; at += 2) {
                prompt[i * length + at] = 1 + id % 30_000;
                prompt[i * length + at + 1] = 1 + id / 30_000;
            }
        }
        prompt[prompt.length - 1] = 1;
        return prompt;
    }
}
