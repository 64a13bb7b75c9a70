// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.engine.model.ModelMaker;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

import java.nio.file.Path;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.Callable;

/// `kvferry make-model`: a small model folder, with no download.
@Command(
        name = "make-model",
        mixinStandardHelpOptions = true,
        description =
                "Writes a tiny deterministic model folder; the same seed gives the same bytes.")
public final class MakeModelCommand implements Callable<Integer> {
    /// The maker that is used when none is named.
    static final String DEFAULT_MAKER = "tiny-llama";

    /// The seed of the demo's model.
    public static final long DEFAULT_SEED = 1;

    @Parameters(paramLabel = "FOLDER", description = "Where to write it; must not exist.")
    Path folder = Path.of("");

    @Option(
            names = "--maker",
            defaultValue = DEFAULT_MAKER,
            description = "What to make (default: ${DEFAULT-VALUE}).")
    String maker = DEFAULT_MAKER;

    @Option(
            names = "--seed",
            defaultValue = "" + DEFAULT_SEED,
            description = "Seed of the weights (default: ${DEFAULT-VALUE}).")
    long seed = DEFAULT_SEED;

    @Option(names = "--json", description = "Print JSON.")
    boolean json;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    @Override
    public Integer call() {
        make(maker, folder, seed);
        var out = spec.commandLine().getOut();
        out.println(
                json
                        ? Json.text(
                                Json.object()
                                        .put("folder", folder.toString())
                                        .put("maker", maker)
                                        .put("seed", seed))
                        : "wrote " + folder);
        out.flush();
        return ExitCode.OK;
    }

    /// Writes the demo's model.
    public static void makeDefault(Path folder) {
        make(folder, DEFAULT_SEED);
    }

    /// Writes the demo's model with other weights.
    public static void make(Path folder, long seed) {
        make(DEFAULT_MAKER, folder, seed);
    }

    private static void make(String name, Path folder, long seed) {
        var makers =
                ServiceLoader.load(ModelMaker.class).stream()
                        .map(ServiceLoader.Provider::get)
                        .toList();
        makers.stream()
                .filter(maker -> maker.name().equals(name))
                .findFirst()
                .orElseThrow(() -> unknown(name, makers))
                .make(folder, seed);
    }

    private static KvFerryException unknown(String name, List<ModelMaker> makers) {
        return new KvFerryException(
                ErrorCode.NOT_FOUND,
                "no model maker is called "
                        + name
                        + "; found: "
                        + makers.stream().map(ModelMaker::name).toList());
    }
}
