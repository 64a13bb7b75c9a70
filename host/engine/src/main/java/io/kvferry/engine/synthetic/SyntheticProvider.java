// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.synthetic;

import io.kvferry.engine.model.LayerGroup;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import java.util.ArrayList;
import java.util.List;

/// The runner `synthetic`; ignores the model folder.
public final class SyntheticProvider implements ModelRunnerProvider {
    @Override
    public String name() {
        return "synthetic";
    }

    @Override
    public String description() {
        return "computes nothing; fills blocks with bytes derived from the tokens and verifies every loaded byte";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of(
                                "model",
                                Option.Type.STRING,
                                "name; models of different names have different KV")
                        .withDefault("synthetic"),
                Option.of("layers", Option.Type.INTEGER, "layers per KV cache group")
                        .withDefault("4")
                        .inRange(1, 1024),
                Option.of("groups", Option.Type.INTEGER, "KV cache groups")
                        .withDefault("1")
                        .inRange(1, 16),
                Option.of("kv_heads", Option.Type.INTEGER, "KV heads of the whole model")
                        .withDefault("2")
                        .inRange(1, 1024),
                Option.of("head_dim", Option.Type.INTEGER, "elements per head")
                        .withDefault("32")
                        .inRange(1, 8192),
                Option.of("dtype", Option.Type.STRING, "element type of the cache")
                        .withDefault("float16"),
                Option.of("vocab", Option.Type.INTEGER, "vocabulary")
                        .withDefault("32000")
                        .inRange(257, 1 << 24),
                Option.of("context", Option.Type.INTEGER, "most tokens of a request")
                        .withDefault("1048576")
                        .inRange(2, 1 << 26),
                Option.of(
                                "eos_every",
                                Option.Type.INTEGER,
                                "on average every n-th token ends the generation; 0 for never")
                        .withDefault("0")
                        .inRange(0, 1 << 24),
                Option.choice(
                        "verify",
                        "which bytes to check: those others wrote, the whole prefix in each step, none",
                        "loaded",
                        "all",
                        "none"),
                Option.choice(
                        "fill",
                        "whether to write KV at all; without, nothing can be verified elsewhere",
                        "yes",
                        "no"),
                Option.of(
                                "embedding_width",
                                Option.Type.INTEGER,
                                "elements per row of encoder outputs; 0 for no encoder")
                        .withDefault("0")
                        .inRange(0, 1 << 16),
                Option.of("step_time", Option.Type.DURATION, "time that every step takes")
                        .withDefault("0")
                        .inRange(0, 60),
                Option.of("token_time", Option.Type.DURATION, "time per computed token")
                        .withDefault("0")
                        .inRange(0, 60),
                Option.of("encode_time", Option.Type.DURATION, "time per encoded row")
                        .withDefault("0")
                        .inRange(0, 60));
    }

    @Override
    public Model open(ModelSource source) {
        return new SyntheticModel(info(source.options()), source.options());
    }

    private static ModelInfo info(OptionValues options) {
        var model = options.string("model");
        var dtype =
                DType.ofLabel(options.string("dtype"))
                        .orElseThrow(() ->
                                new IllegalArgumentException(
                                        "unknown dtype " + options.string("dtype")));
        return new ModelInfo(
                model,
                "synthetic:" + model,
                "synthetic-1",
                groups((int) options.integer("groups"), (int) options.integer("layers")),
                (int) options.integer("kv_heads"),
                (int) options.integer("head_dim"),
                dtype,
                KvLayout.LBNHC,
                2,
                (int) options.integer("vocab"),
                (int) options.integer("context"),
                List.of(SyntheticModel.EOS),
                (int) options.integer("embedding_width"));
    }

    private static List<LayerGroup> groups(int groups, int layers) {
        var names = ModelInfo.llamaLayers(groups * layers).getFirst().layers();
        var split = new ArrayList<LayerGroup>();
        for (int g = 0; g < groups; g++) {
            split.add(LayerGroup.attention(names.subList(g * layers, (g + 1) * layers)));
        }
        return split;
    }
}
