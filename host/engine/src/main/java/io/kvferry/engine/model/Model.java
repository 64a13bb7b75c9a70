// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

/// An open model in this process.
///
/// Threading: any thread; [#openRunner] is called once per rank, possibly from several threads.
public interface Model extends AutoCloseable {
    ModelInfo info();

    Tokenizer tokenizer();

    /// The compute half of one rank.
    ModelRunner openRunner(RunnerContext context);

    /// Called after all its runners were closed. Idempotent.
    @Override
    void close();
}
