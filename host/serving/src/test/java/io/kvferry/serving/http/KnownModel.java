// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

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
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import java.util.List;

/// A model whose logits a test can compute for itself: a function of position, token there and next
/// token. Letters are likely, all other bytes are not.
final class KnownModel implements Model {
    static final int VOCABULARY = 256;

    /// The logits behind the token at `position`.
    static float[] logits(int position, int token) {
        var logits = new float[VOCABULARY];
        for (int next = 0; next < VOCABULARY; next++) {
            logits[next] =
                    next < 'a' || next > 'z'
                            ? -30
                            : (float) (3 * Math.sin(next * (1 + token % 13) + 0.7 * position));
        }
        return logits;
    }

    /// Opens the model.
    static final class Provider implements ModelRunnerProvider {
        @Override
        public String name() {
            return "known";
        }

        @Override
        public String description() {
            return "logits that tests know";
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
            return new KnownModel();
        }
    }

    @Override
    public ModelInfo info() {
        return new ModelInfo(
                "known",
                "known-1",
                "known-1",
                ModelInfo.llamaLayers(1),
                1,
                4,
                DType.FLOAT32,
                KvLayout.LBNHC,
                1,
                VOCABULARY,
                512,
                List.of(0),
                0);
    }

    @Override
    public boolean scoresPrompts() {
        return true;
    }

    @Override
    public Tokenizer tokenizer() {
        return new ByteTokenizer();
    }

    @Override
    public ModelRunner openRunner(RunnerContext context) {
        return new Runner(context);
    }

    @Override
    public void close() {}

    private record Runner(RunnerContext context) implements ModelRunner {
        @Override
        public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
            for (var region : context.regions()) {
                hooks.beforeLayer(region.layerIndex());
                hooks.afterLayer(region.layerIndex());
            }
            for (int i = 0; i < batch.size(); i++) {
                var item = batch.item(i);
                for (int k = 0; k < item.promptLogits(); k++) {
                    output.promptLogits(i, k, logits(item.start() + k, item.token(k)));
                }
                if (item.sampled()) {
                    int last = item.start() + item.count() - 1;
                    output.logits(i, logits(last, item.tokenAt(last)));
                }
            }
        }

        @Override
        public void close() {}
    }
}
