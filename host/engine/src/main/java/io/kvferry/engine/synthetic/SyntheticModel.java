// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.synthetic;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.KvLayout;

import java.nio.charset.StandardCharsets;
import java.util.Set;

/// The synthetic model: everything follows from a rolling hash of the token prefix.
final class SyntheticModel implements Model {
    /// The end token; byte 0 stands for nothing else.
    static final int EOS = 0;

    private final ModelInfo info;
    private final OptionValues options;
    private final long seed;

    SyntheticModel(ModelInfo info, OptionValues options) {
        this.info = info;
        this.options = options;
        long hash = 0;
        for (byte b : info.name().getBytes(StandardCharsets.UTF_8)) {
            hash = mix(hash + b);
        }
        this.seed = hash;
    }

    /// SplitMix64's finaliser.
    static long mix(long z) {
        z += 0x9E3779B97F4A7C15L;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return z ^ z >>> 31;
    }

    /// The state after no token.
    long seed() {
        return seed;
    }

    /// The state after one more token.
    static long next(long state, int token) {
        return mix(state ^ token * 0xD1B54A32D192ED03L);
    }

    /// The token that follows a prefix.
    int tokenAfter(long state) {
        long draw = mix(state ^ 0x5851F42D4C957F2DL);
        long every = options.integer("eos_every");
        if (every > 0 && Long.remainderUnsigned(draw >>> 32, every) == 0) {
            return EOS;
        }
        return 1 + (int) Long.remainderUnsigned(draw, info.vocabSize() - 1);
    }

    OptionValues options() {
        return options;
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
    public Tokenizer tokenizer() {
        return ByteTokenizer.INSTANCE;
    }

    @Override
    public ModelRunner openRunner(RunnerContext context) {
        return new SyntheticRunner(this, context);
    }

    @Override
    public void close() {}
}
