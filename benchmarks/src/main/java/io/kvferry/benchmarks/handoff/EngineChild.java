// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.Engines;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.EventSink;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;

/// One engine with a Llama-3-8B-shaped cache, in a JVM of its own. It obeys lines on its standard
/// input, `ID TOKENS KEY=VALUE...`: a prompt of so many tokens that follows from the id, and its
/// `kv_transfer_params`. It answers each with [EngineProcess.Report], and ends with its input.
final class EngineChild {
    /// 2 x 8 heads x 128 elements x 2 bytes in 32 layers.
    static final long BYTES_PER_TOKEN = 128 << 10;

    static final int BLOCK_TOKENS = 16;
    static final Duration LIMIT = Duration.ofMinutes(2);

    /// What a prompt token costs at P beside the writing of its KV: 20,000 tokens/s, as an 8B model
    /// on one data-centre GPU.
    static final String TOKEN_TIME = "50us";

    private EngineChild() {}

    /// @param args config JSON of the connector, tokens of the longest prompt, `verify` option of
    ///   the runner
    public static void main(String[] args) throws IOException {
        int blocks = Integer.parseInt(args[1]) / BLOCK_TOKENS + 4;
        var model =
                Map.<String, Object>of(
                        "layers",
                        32L,
                        "kv_heads",
                        8L,
                        "head_dim",
                        128L,
                        "dtype",
                        "bfloat16",
                        "token_time",
                        TOKEN_TIME,
                        "verify",
                        args[2]);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
            var connector = kvferry.kv(args[0]);
            var config =
                    EngineConfig.of(new SyntheticProvider(), Path.of("."), model)
                            .kvConnector(connector.provider(), connector.config())
                            .host(kvferry.services())
                            .blockTokens(BLOCK_TOKENS)
                            .blockCount(blocks)
                            .closeLimit(Duration.ZERO);
            try (var engine = Engine.open(config).start()) {
                var unused =
                        EngineProcess.Moment.now().word(); // its classes are no cost of a hand-off
                engine.warmUp(Deadline.in(LIMIT)); // as `kvferry serve` does
                ChildJvm.ready();
                for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                    serve(engine, line.split(" "));
                }
                var counted = new TreeMap<>(engine.stats().kvConnector().counters());
                System.err.println("# connector of engine " + idIn(args[0]) + ": " + counted);
            }
        }
    }

    /// The id in a connector's JSON.
    private static String idIn(String connector) {
        return connector.replaceFirst("(?s).*\"engine_id\": \"(\\w+)\".*", "$1");
    }

    private static void serve(Engine engine, String[] words) {
        var params = new HashMap<String, Object>();
        for (int i = 2; i < words.length; i++) {
            var pair = words[i].split("=", 2);
            params.put(
                    pair[0],
                    pair[1].equals("true") || pair[1].equals("false")
                            ? Boolean.valueOf(pair[1])
                            : pair[1]);
        }
        var request =
                GenerationRequest.of(
                                prompt(words[0], Integer.parseInt(words[1])),
                                SamplingParams.greedy(1).withIgnoreEos(true))
                        .withKvParams(new TransferParams(params));
        var begun = EngineProcess.Moment.now();
        var handle = engine.submit(request);
        var ended = new CompletableFuture<EngineProcess.Moment>();
        handle.outcome().thenRun(() -> ended.complete(EngineProcess.Moment.now()));
        var outcome = handle.await(Deadline.in(LIMIT)).orElseThrow();
        if (!(outcome instanceof Outcome.Finished finished)) {
            throw new IllegalStateException("not served: " + outcome);
        }
        int loaded = finished.usage().cachedTokens();
        Engines.awaitIdle(engine, Deadline.in(LIMIT));
        var idle = EngineProcess.Moment.now();
        System.out.println(new EngineProcess.Report(begun, ended.join(), idle, loaded).line());
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
