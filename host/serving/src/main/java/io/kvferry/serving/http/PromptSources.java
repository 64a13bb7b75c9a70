// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Usage;

import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;

/// Counts the prompt tokens of answered requests by where their KV came from: the engine's own
/// cache, the model, or a connector.
///
/// Threading: any thread.
final class PromptSources {
    private static final String NAME = "kvferry_prompt_tokens_by_source_total";
    private static final String HELP =
            "Prompt tokens of answered requests by where their KV came from.";

    private final LongAdder own = new LongAdder();
    private final LongAdder computed = new LongAdder();

    /// By connector; as many entries as the configuration names connectors.
    private final ConcurrentSkipListMap<String, LongAdder> delivered =
            new ConcurrentSkipListMap<>();

    void add(Usage usage) {
        own.add(usage.localTokens());
        computed.add(usage.computedTokens());
        usage.external()
                .forEach(share ->
                        delivered
                                .computeIfAbsent(share.source(), _ -> new LongAdder())
                                .add(share.tokens()));
    }

    void write(PrometheusText text) {
        text.counter(NAME, HELP, own.sum(), "source", "own cache", "connector", "")
                .counter(NAME, HELP, computed.sum(), "source", "computed", "connector", "");
        delivered.forEach((connector, tokens) ->
                text.counter(
                        NAME, HELP, tokens.sum(), "source", "connector", "connector", connector));
    }
}
