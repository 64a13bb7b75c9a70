// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvLayout;

import java.util.Optional;
import java.util.Set;

/// An open model in this process.
///
/// Threading: any thread; [#openRunner] is called once per rank, possibly from several threads.
public interface Model extends AutoCloseable {
    /// The facts, with the layout that the runner prefers.
    ModelInfo info();

    /// The cache layouts that [#openRunner] can work with; which one it is stands in
    /// [RunnerContext#cache].
    default Set<KvLayout> layouts() {
        return Set.of(info().layout());
    }

    /// The facts with the layout that an engine has to use.
    ///
    /// @param required what its connector works with; empty for any
    /// @param connector for the message
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when the runner cannot provide it
    default ModelInfo info(Optional<KvLayout> required, String connector) {
        if (required.isPresent() && !layouts().contains(required.get())) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    connector
                            + " needs cache layout "
                            + required.get()
                            + ", the runner has "
                            + layouts().stream().sorted().toList());
        }
        return info().withLayout(required.orElse(info().layout()));
    }

    /// Whether runners give the logits behind tokens of the prompt where a request wants them
    /// ([StepBatch.Item#promptLogits]); such requests are refused otherwise.
    default boolean scoresPrompts() {
        return false;
    }

    Tokenizer tokenizer();

    /// The compute half of one rank.
    ModelRunner openRunner(RunnerContext context);

    /// Called after all its runners were closed. Idempotent.
    @Override
    void close();
}
