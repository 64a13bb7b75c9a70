// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.engine.model.LayerGroup;
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

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;

/// The synthetic model with another shape, or with a runner that does something else around its
/// steps.
public final class AlteredModel implements ModelRunnerProvider {
    private final ModelRunnerProvider synthetic = new SyntheticProvider();
    private final AtomicInteger open = new AtomicInteger();
    private final UnaryOperator<ModelInfo> info;
    private final Around around;

    /// One step of the runner.
    @FunctionalInterface
    public interface Around {
        void execute(ModelRunner runner, StepBatch batch, StepOutput output, LayerHooks hooks);
    }

    private AlteredModel(UnaryOperator<ModelInfo> info, Around around) {
        this.info = info;
        this.around = around;
    }

    /// With other layer groups.
    public static AlteredModel withGroups(List<LayerGroup> groups) {
        return new AlteredModel(info -> shaped(info, groups), ModelRunner::execute);
    }

    /// With other steps.
    public static AlteredModel withSteps(Around around) {
        return new AlteredModel(info -> info, around);
    }

    private static ModelInfo shaped(ModelInfo info, List<LayerGroup> groups) {
        return new ModelInfo(
                info.name(),
                info.digest(),
                info.runner(),
                groups,
                info.kvHeads(),
                info.headDim(),
                info.dtype(),
                info.layout(),
                info.layoutVersion(),
                info.vocabSize(),
                info.contextTokens(),
                info.eosTokens(),
                info.embeddingWidth());
    }

    /// Models opened and not closed.
    public int openModels() {
        return open.get();
    }

    @Override
    public String name() {
        return "altered";
    }

    @Override
    public String description() {
        return "the synthetic model, altered";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return synthetic.spiVersions();
    }

    @Override
    public OptionSchema options() {
        return synthetic.options();
    }

    @Override
    public Model open(ModelSource source) {
        var model = synthetic.open(source);
        var altered = info.apply(model.info());
        open.incrementAndGet();
        return new Model() {
            @Override
            public ModelInfo info() {
                return altered;
            }

            @Override
            public Tokenizer tokenizer() {
                return model.tokenizer();
            }

            @Override
            public ModelRunner openRunner(RunnerContext context) {
                return alter(model.openRunner(context));
            }

            @Override
            public void close() {
                open.decrementAndGet();
                model.close();
            }
        };
    }

    private ModelRunner alter(ModelRunner runner) {
        return new ModelRunner() {
            @Override
            public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
                around.execute(runner, batch, output, hooks);
            }

            @Override
            public void close() {
                runner.close();
            }
        };
    }
}
