// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import io.kvferry.engine.model.FolderTokenizer;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;

/// The runner `jlama`: one rank, F32 weights and cache, two compute threads per process.
///
/// Threading: stateless.
public final class JlamaRunnerProvider implements ModelRunnerProvider {
    private static final String VECTOR_MODULE = "jdk.incubator.vector";
    private static final String REMEDY =
            "add --add-modules " + VECTOR_MODULE + " to the java command line";

    @Override
    public String name() {
        return "jlama";
    }

    @Override
    public String description() {
        return "Jlama "
                + JlamaFolder.JLAMA_VERSION
                + " on the CPU; needs --add-modules "
                + VECTOR_MODULE;
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
    public Availability availability() {
        return ModuleLayer.boot().findModule(VECTOR_MODULE).isPresent()
                ? new Availability.Available("Jlama " + JlamaFolder.JLAMA_VERSION)
                : new Availability.Unavailable(
                        "this JVM runs without the module " + VECTOR_MODULE, REMEDY);
    }

    @Override
    public Model open(ModelSource source) {
        if (availability() instanceof Availability.Unavailable(String reason, String remedy)) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE, "runner jlama: " + reason + "; " + remedy);
        }
        JlamaFolder folder = JlamaFolder.read(source.folder());
        FolderTokenizer tokenizer = FolderTokenizer.load(source.folder());
        if (tokenizer.size() != folder.vocabulary()) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    source.folder()
                            + ": Jlama needs a token for each of the "
                            + folder.vocabulary()
                            + " ids of the model, tokenizer.json has "
                            + tokenizer.size());
        }
        return new JlamaModel(folder, tokenizer);
    }
}
