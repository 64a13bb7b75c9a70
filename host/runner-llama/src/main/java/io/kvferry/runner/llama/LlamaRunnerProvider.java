// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.engine.model.FolderTokenizer;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.model.ModelDigest;

import org.jspecify.annotations.Nullable;

import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/// The runner `llama`: plain Java, no flags, one rank, F32 cache.
///
/// Threading: stateless.
public final class LlamaRunnerProvider implements ModelRunnerProvider {
    /// Changes whenever the same folder would give other KV bits; part of the cache namespace.
    static final String RUNNER = "llama-1";

    private static final int LAYOUT_VERSION = 2;

    @Override
    public String name() {
        return "llama";
    }

    @Override
    public String description() {
        return "reference Llama in plain Java; KV is equal bit for bit from run to run";
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
        Path folder = source.folder();
        LlamaConfig config = LlamaConfig.load(folder);
        return new OpenModel(folder, info(folder, config), tokenizer(folder, config));
    }

    private static FolderTokenizer tokenizer(Path folder, LlamaConfig config) {
        FolderTokenizer tokenizer = FolderTokenizer.load(folder);
        if (tokenizer.size() > config.vocabulary()) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    folder
                            + ": tokenizer.json has ids up to "
                            + (tokenizer.size() - 1)
                            + ", the model embeds "
                            + config.vocabulary());
        }
        return tokenizer;
    }

    private static ModelInfo info(Path folder, LlamaConfig config) {
        return new ModelInfo(
                String.valueOf(folder.toAbsolutePath().normalize().getFileName()),
                ModelDigest.of(folder),
                RUNNER,
                ModelInfo.llamaLayers(config.layers()),
                config.kvHeads(),
                config.headDim(),
                DType.FLOAT32,
                KvLayout.LBNHC,
                LAYOUT_VERSION,
                config.vocabulary(),
                config.contextLength(),
                config.eosTokens().stream().sorted().toList(),
                0);
    }

    /// An opened folder; the weights are read when the first runner needs them.
    private static final class OpenModel implements Model {
        private final Path folder;
        private final ModelInfo info;
        private final Tokenizer tokenizer;
        private final ReentrantLock loading = new ReentrantLock();
        private @Nullable LlamaModel weights;

        OpenModel(Path folder, ModelInfo info, Tokenizer tokenizer) {
            this.folder = folder;
            this.info = info;
            this.tokenizer = tokenizer;
        }

        @Override
        public ModelInfo info() {
            return info;
        }

        @Override
        public Set<KvLayout> layouts() {
            return Set.of(KvLayout.LBNHC, KvLayout.LBHNC);
        }

        @Override
        public boolean scoresPrompts() {
            return true;
        }

        @Override
        public Tokenizer tokenizer() {
            return tokenizer;
        }

        @Override
        public ModelRunner openRunner(RunnerContext context) {
            if (context.rank().worldSize() != 1) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED,
                        "the llama runner computes on one rank, not "
                                + context.rank().worldSize()
                                + "; the synthetic runner has several");
            }
            LlamaModel model = weights();
            int width = 2 * model.config().kvWidth();
            return new LlamaRunner(
                    model, new KvPages(context.regions(), context.cache(), info.kvHeads(), width));
        }

        private LlamaModel weights() {
            loading.lock();
            try {
                @Nullable LlamaModel loaded = weights;
                if (loaded == null) {
                    loaded = LlamaModel.load(folder);
                    weights = loaded;
                }
                return loaded;
            } finally {
                loading.unlock();
            }
        }

        @Override
        public void close() {
            // plain arrays: the collector frees them
        }
    }
}
