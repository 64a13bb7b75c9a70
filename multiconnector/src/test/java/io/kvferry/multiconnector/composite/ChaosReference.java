// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;

/// The requests of [ChaosRun], and what an engine with room for everything computes for them.
///
/// @param tokens by prompt
/// @param blocks every block by [ChaosKv#key]
record ChaosReference(List<int[]> tokens, Map<String, byte[]> blocks) {
    static final int PROMPTS = 6;
    static final int TOKENS = 24;

    /// Small items, far more than there is room for: each is loaded again and again.
    private static final int SMALL = 12;

    /// Rows of the largest item.
    static final int ITEM_ROWS = 7;

    static final int BLOCK_TOKENS = 4;
    static final Map<String, Object> MODEL =
            Map.of(
                    "verify",
                    "all",
                    "layers",
                    1,
                    "kv_heads",
                    4,
                    "head_dim",
                    4,
                    "embedding_width",
                    4);
    private static final Map<Integer, ChaosReference> REFERENCES = new HashMap<>();

    static synchronized ChaosReference of(int ranks) {
        return REFERENCES.computeIfAbsent(ranks, ChaosReference::compute);
    }

    private static ChaosReference compute(int ranks) {
        var all = new ChaosKv("all", 0, true);
        var config =
                EngineConfig.of(new SyntheticProvider(), Path.of(""), MODEL)
                        .blockTokens(BLOCK_TOKENS)
                        .blockCount(1024)
                        .worldSize(ranks)
                        .encoder(1000, 1000)
                        .kvConnector(all, config(all.name(), LoadFailurePolicy.FAIL, Map.of()));
        try (var engine = Engine.open(config)) {
            var tokens =
                    IntStream.range(0, PROMPTS)
                            .mapToObj(i -> {
                                var handle = engine.submit(request(i, TOKENS, true));
                                while (handle.await(Deadline.in(Duration.ZERO)).isEmpty()) {
                                    engine.step();
                                }
                                return ((Outcome.Finished)
                                                handle.await(Deadline.in(Duration.ZERO))
                                                        .orElseThrow())
                                        .tokens();
                            })
                            .toList();
            engine.step();
            return new ChaosReference(tokens, Map.copyOf(all.store));
        }
    }

    static ConnectorConfig config(
            String name, LoadFailurePolicy policy, Map<String, Object> options) {
        return new ConnectorConfig(
                name, KvRole.BOTH, "e", "cpu", 0, -1, 1, "127.0.0.1", 1, policy, options);
    }

    /// Pairs of prompts share a prefix; all but one have items.
    static GenerationRequest request(int i, int tokens, boolean withContent) {
        return request(i, SamplingParams.greedy(tokens), withContent);
    }

    static GenerationRequest request(int i, SamplingParams sampling, boolean withContent) {
        var random = new Random(i / 2);
        var prompt = IntStream.range(0, 18 + 3 * i).map(_ -> 1 + random.nextInt(30_000)).toArray();
        prompt[prompt.length - 1] = 1 + i;
        var items = new ArrayList<EncoderInput>();
        if (i > 0) {
            items.add(item("a" + i / 2, 2, 5, withContent));
            items.add(item("b" + i % 4, 9, 4 + i % 4, withContent));
        }
        return GenerationRequest.of(prompt, sampling).withItems(items);
    }

    /// A request of less than a block, with a small item that only a few others have.
    static GenerationRequest small(int i) {
        var prompt = new int[] {1, 2, 3};
        return GenerationRequest.of(prompt, SamplingParams.greedy(1))
                .withItems(List.of(item("s" + i % SMALL, 0, 2, true)));
    }

    private static EncoderInput item(String hash, int position, int rows, boolean withContent) {
        return new EncoderInput(
                hash + "-" + rows,
                "image",
                position,
                rows,
                withContent ? hash.getBytes(StandardCharsets.UTF_8) : new byte[0]);
    }
}
