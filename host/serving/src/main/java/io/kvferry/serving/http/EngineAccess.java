// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.Deadline;

import java.util.function.Function;
import java.util.function.Supplier;

/// What the API needs of an engine.
///
/// @param modelName the id in `/v1/models`, and what a request's `model` must say
/// @param contextTokens most tokens of a request, prompt and generated
/// @param kvConnector name of the KV connector, empty without one
/// @param ecConnector name of the encoder-cache connector, empty without one
/// @param vocabulary token ids are below it
/// @param defaults for fields that a request leaves out
/// @param submit any thread; throws what [Engine#submit] throws
public record EngineAccess(
        String modelName,
        int contextTokens,
        Tokenizer tokenizer,
        String kvConnector,
        String ecConnector,
        int vocabulary,
        SamplingDefaults defaults,
        Function<GenerationRequest, RequestHandle> submit,
        Supplier<EngineStats> stats,
        CacheReset reset) {
    /// Empties caches; see [Engine#resetCaches].
    @FunctionalInterface
    public interface CacheReset {
        boolean reset(Deadline limit, boolean external);
    }

    /// A running engine under its served name.
    public static EngineAccess of(Engine engine, String servedName, SamplingDefaults defaults) {
        return new EngineAccess(
                servedName,
                engine.model().contextTokens(),
                engine.tokenizer(),
                engine.kvConnector(),
                engine.ecConnector(),
                engine.model().vocabSize(),
                defaults,
                engine::submit,
                engine::stats,
                engine::resetCaches);
    }
}
