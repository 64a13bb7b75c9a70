// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.engine.model.EncoderInput;
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
import io.kvferry.spi.ec.EncoderOutput;

import java.util.List;
import java.util.Random;

/// The synthetic model, whose forward passes and encoders fail now and then: before the first layer
/// or in the middle.
final class FlakyModel implements ModelRunnerProvider {
    private static final int CHANCE = 40;

    private final ModelRunnerProvider synthetic = new SyntheticProvider();
    private final long seed;
    private volatile boolean flaky;
    private volatile Runnable submitting = () -> {};

    FlakyModel(long seed, boolean flaky) {
        this.seed = seed;
        this.flaky = flaky;
    }

    /// Runs within each submission of a request with stop strings.
    void whenSubmitting(Runnable pause) {
        submitting = pause;
    }

    void calm() {
        flaky = false;
    }

    @Override
    public String name() {
        return "flaky";
    }

    @Override
    public String description() {
        return "the synthetic model, which fails now and then";
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
        return new Model() {
            @Override
            public ModelInfo info() {
                return model.info();
            }

            @Override
            public Tokenizer tokenizer() {
                return slow(model.tokenizer());
            }

            @Override
            public ModelRunner openRunner(RunnerContext context) {
                return new Runner(model.openRunner(context), context.rank().rank());
            }

            @Override
            public void close() {
                model.close();
            }
        };
    }

    /// Whoever submits a request with stop strings opens a decoder.
    private Tokenizer slow(Tokenizer tokenizer) {
        return new Tokenizer() {
            @Override
            public int[] encode(String text) {
                return tokenizer.encode(text);
            }

            @Override
            public String decode(int[] tokens) {
                return tokenizer.decode(tokens);
            }

            @Override
            public int[] encodeChat(List<ChatMessage> messages) {
                return tokenizer.encodeChat(messages);
            }

            @Override
            public StreamDecoder streamDecoder() {
                submitting.run();
                return tokenizer.streamDecoder();
            }
        };
    }

    private final class Runner implements ModelRunner {
        private final ModelRunner runner;
        private final Random random;

        Runner(ModelRunner runner, int rank) {
            this.runner = runner;
            this.random = new Random(seed + rank);
        }

        @Override
        public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
            if (flaky && random.nextInt(CHANCE) == 0) {
                if (random.nextBoolean()) {
                    hooks.beforeLayer(0);
                }
                throw new IllegalStateException("injected into the forward pass");
            }
            runner.execute(batch, output, hooks);
        }

        @Override
        public void encode(EncoderInput item, EncoderOutput target) {
            if (flaky && random.nextInt(CHANCE) == 0) {
                throw new IllegalStateException("injected into the encoder");
            }
            runner.encode(item, target);
        }

        @Override
        public void close() {
            runner.close();
        }
    }
}
