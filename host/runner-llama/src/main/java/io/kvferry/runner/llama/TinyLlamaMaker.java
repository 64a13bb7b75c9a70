// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.engine.model.ModelMaker;

import java.nio.file.Path;

/// The maker `tiny-llama`: the folder of [MakeModel].
///
/// Threading: stateless.
public final class TinyLlamaMaker implements ModelMaker {
    @Override
    public String name() {
        return "tiny-llama";
    }

    @Override
    public String description() {
        return "random Llama of 4 layers and 2.9 MB, byte-level tokenizer; for the runners llama and jlama";
    }

    @Override
    public void make(Path folder, long seed) {
        MakeModel.write(folder, seed);
    }
}
