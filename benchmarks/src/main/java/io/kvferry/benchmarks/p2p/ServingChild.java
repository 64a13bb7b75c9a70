// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.EventSink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/// One engine that serves many requests at a time, in a JVM of its own. It obeys lines `ID TOKENS
/// OUTPUT KEY=VALUE...`, and answers each when it has ended: `ID BEGUN FIRST END GENERATED LOADED`,
/// times in nanoseconds of the machine's clock.
final class ServingChild {
    static final Duration LIMIT = Duration.ofMinutes(5);
    private static final int BLOCK_TOKENS = 16;

    private ServingChild() {}

    /// @param args config JSON of the connector, blocks of the cache, `step_time`, `token_time`
    public static void main(String[] args) throws Exception {
        var model =
                Map.<String, Object>of(
                        "layers",
                        16L,
                        "kv_heads",
                        8L,
                        "head_dim",
                        64L,
                        "dtype",
                        "bfloat16",
                        "step_time",
                        args[2],
                        "token_time",
                        args[3],
                        "verify",
                        "loaded");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
            var connector = kvferry.kv(args[0]);
            var config =
                    EngineConfig.of(new SyntheticProvider(), Path.of("."), model)
                            .kvConnector(connector.provider(), connector.config())
                            .host(kvferry.services())
                            .blockTokens(BLOCK_TOKENS)
                            .blockCount(Integer.parseInt(args[1]))
                            .maxRunning(256)
                            .prefixCache(false)
                            .closeLimit(Duration.ZERO);
            try (var engine = Engine.open(config).start()) {
                ChildJvm.ready();
                for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                    serve(engine, line.split(" "));
                }
            }
        }
    }

    private static void serve(Engine engine, String[] words) {
        var params = new HashMap<String, Object>();
        for (int i = 3; i < words.length; i++) {
            var pair = words[i].split("=", 2);
            params.put(
                    pair[0],
                    pair[1].equals("true") || pair[1].equals("false")
                            ? Boolean.valueOf(pair[1])
                            : pair[1]);
        }
        int output = Integer.parseInt(words[2]);
        var request =
                GenerationRequest.of(
                                prompt(words[0], Integer.parseInt(words[1])),
                                SamplingParams.greedy(output).withIgnoreEos(true))
                        .withKvParams(new TransferParams(params));
        long begun = System.nanoTime();
        var handle = engine.submit(request);
        Thread.ofVirtual().start(() -> System.out.println(words[0] + " " + begun + follow(handle)));
    }

    private static String follow(RequestHandle handle) {
        var limit = Deadline.in(LIMIT);
        long first = 0;
        int generated = 0;
        for (var event = handle.next(limit); event.isPresent(); event = handle.next(limit)) {
            switch (event.get()) {
                case RequestHandle.StreamEvent.Token _ -> {
                    first = first == 0 ? System.nanoTime() : first;
                    generated++;
                }
                case RequestHandle.StreamEvent.Ended(Outcome.Finished finished) -> {
                    int loaded =
                            finished.usage().external().stream()
                                    .mapToInt(LookupResult.Share::tokens)
                                    .sum();
                    return " " + first + " " + System.nanoTime() + " " + generated + " " + loaded;
                }
                case RequestHandle.StreamEvent.Ended(var outcome) -> {
                    System.err.println("# not served: " + outcome);
                    return " 0 0 0 0";
                }
            }
        }
        return " 0 0 0 0";
    }

    private static int[] prompt(String id, int tokens) {
        var prompt = new int[tokens];
        int word = id.hashCode();
        for (int i = 0; i < tokens; i++) {
            word = word * 1_103_515_245 + 12_345;
            prompt[i] = 1 + (word >>> 8) % 30_000;
        }
        return prompt;
    }
}
