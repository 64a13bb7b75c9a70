// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.serving.metrics.EngineMetrics;
import io.kvferry.spi.Deadline;

import java.util.function.Function;
import java.util.function.Supplier;

/// The parts of an engine that the API uses.
///
/// @param modelName the id in `/v1/models`, and what a request's `model` must say
/// @param contextTokens most tokens of a request, prompt and generated
/// @param vocabulary token ids are below it
/// @param defaults for fields that a request leaves out
/// @param submit any thread; throws what [Engine#submit] throws
/// @param metrics what `/metrics` answers
public record EngineAccess(
        String modelName,
        int contextTokens,
        Tokenizer tokenizer,
        int vocabulary,
        SamplingDefaults defaults,
        Function<GenerationRequest, RequestHandle> submit,
        Supplier<EngineStats> stats,
        CacheReset reset,
        EngineMetrics metrics) {
    /// Empties caches; see [Engine#resetCaches].
    @FunctionalInterface
    public interface CacheReset {
        boolean reset(Deadline limit, boolean external);
    }

    /// An engine under its served name; before [Engine#start], whose requests its metrics count.
    public static EngineAccess of(Engine engine, String servedName, SamplingDefaults defaults) {
        var metrics = new EngineMetrics(servedName, engine.model().contextTokens());
        var cache = engine.cache();
        metrics.cache(cache.groups().getFirst().blockTokens(), cache.blockCount());
        metrics.watch(engine::stats, engine.kvConnector(), engine.ecConnector());
        engine.onProgress(metrics.listener());
        return new EngineAccess(
                servedName,
                engine.model().contextTokens(),
                engine.tokenizer(),
                engine.model().vocabSize(),
                defaults,
                engine::submit,
                engine::stats,
                engine::resetCaches,
                metrics);
    }
}
