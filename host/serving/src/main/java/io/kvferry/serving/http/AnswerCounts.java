// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Usage;
import io.kvferry.serving.metrics.EngineMetrics;

import java.util.function.ObjIntConsumer;

/// Counts the answers of one request for the metrics: those to a prompt together once the last of
/// them has ended.
///
/// Threading: the handler's thread.
final class AnswerCounts implements ObjIntConsumer<Usage> {
    private final EngineMetrics metrics;
    private final int n;
    private final int[] ended;
    private final int[] longest;

    AnswerCounts(EngineMetrics metrics, CompletionRequest request) {
        this.metrics = metrics;
        n = request.n();
        int prompts = request.generations().size() / n;
        ended = new int[prompts];
        longest = new int[prompts];
        for (int prompt = 0; prompt < prompts; prompt++) {
            metrics.asked(n, request.generations().get(prompt * n).sampling().maxTokens());
        }
    }

    /// A choice ended without a failure.
    @Override
    public void accept(Usage usage, int choice) {
        metrics.answered(usage);
        int prompt = choice / n;
        longest[prompt] = Math.max(longest[prompt], usage.generatedTokens());
        ended[prompt]++;
        if (ended[prompt] == n) {
            metrics.longestAnswer(longest[prompt]);
        }
    }
}
