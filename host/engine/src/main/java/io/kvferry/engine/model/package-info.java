// SPDX-License-Identifier: Apache-2.0
/// What an engine author supplies: a [ModelRunnerProvider] that opens a [Model], and a
/// [ModelRunner] per worker rank that computes steps over KV memory which the engine owns.
///
/// ```
/// ModelRunnerProvider.open -> Model        (once per process: shape, tokenizer; weights on demand)
/// Model.openRunner -> ModelRunner          (once per rank, with the cache regions)
///   per step with work: ModelRunner.execute(batch, output, hooks)
/// ModelRunner.close, Model.close
/// ```
@NullMarked
package io.kvferry.engine.model;

import org.jspecify.annotations.NullMarked;
