// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.engine;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/// A model whose every token is 1 and whose cache stays empty, so that only the engine costs
/// anything.
public final class NullRunner implements ModelRunnerProvider {
    private static final ModelInfo INFO =
            new ModelInfo(
                    "null",
                    "null",
                    "null-1",
                    ModelInfo.llamaLayers(1),
                    1,
                    1,
                    DType.UINT8,
                    KvLayout.LBNHC,
                    1,
                    256,
                    1 << 25,
                    List.of(),
                    0);

    @Override
    public String name() {
        return "null";
    }

    @Override
    public String description() {
        return "computes nothing";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.NONE;
    }

    @Override
    public Model open(ModelSource source) {
        var tokenizer = byteTokenizer();
        return new Model() {
            @Override
            public ModelInfo info() {
                return INFO;
            }

            @Override
            public Tokenizer tokenizer() {
                return tokenizer;
            }

            @Override
            public ModelRunner openRunner(RunnerContext context) {
                return new Runner();
            }

            @Override
            public void close() {}
        };
    }

    /// The synthetic runner's: nothing here decodes.
    private static Tokenizer byteTokenizer() {
        var synthetic = new SyntheticProvider();
        return synthetic
                .open(new ModelSource(Path.of(""), synthetic.options().read("null", Map.of())))
                .tokenizer();
    }

    private static final class Runner implements ModelRunner {
        @Override
        public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
            hooks.beforeLayer(0);
            hooks.afterLayer(0);
            for (int i = 0; i < batch.size(); i++) {
                if (batch.item(i).sampled()) {
                    output.token(i, 1);
                }
            }
        }

        @Override
        public void close() {}
    }
}
