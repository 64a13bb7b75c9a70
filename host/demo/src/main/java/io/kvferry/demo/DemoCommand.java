// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.cli.ProgressBar;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.util.Optional;

/// `kvferry demo`.
public final class DemoCommand implements CommandProvider {
    private static final String STORE_CONNECTOR = "MooncakeStoreConnector";
    private static final int ALL_MATCH = 0;
    private static final int TOKENS_DIFFER = 1;

    @Override
    public String name() {
        return "demo";
    }

    @Override
    public String description() {
        return "Serves bundled prompts through a prefill and a decode process, and compares every"
                + " token with a run in one process. Exit code 0 when all are the same, 1 when"
                + " not.";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("runner", Option.Type.STRING, "model runner").withDefault("jlama"),
                Option.of(
                        "model",
                        Option.Type.PATH,
                        "Hugging Face model folder; without it a tiny model, made if absent"),
                Option.of(
                        "connector",
                        Option.Type.STRING,
                        "connector that is asked before DiskConnector, e.g. MooncakeConnector;"
                                + " MooncakeStoreConnector is alone, with its store in a process of"
                                + " its own, and the engines are killed and started anew halfway"),
                Option.of(
                                "store",
                                Option.Type.STRING,
                                "store of MooncakeStoreConnector: owner, a process of ours; master,"
                                        + " two of them and a master that lists them; or mooncake, a"
                                        + " real Mooncake cluster, whose programs and library must be"
                                        + " installed")
                        .withDefault("owner"),
                Option.of(
                                "keep",
                                Option.Type.BOOLEAN,
                                "keep the working folder with disk cache and logs")
                        .withDefault("false"));
    }

    /// Folder of Mooncake's programs, when they are asked for.
    private static Optional<Path> mooncake(OptionValues options) {
        boolean onStore =
                options.optionalString("connector").filter(STORE_CONNECTOR::equals).isPresent();
        return switch (options.string("store")) {
            case "owner", "master" -> Optional.empty();
            case "mooncake" -> {
                if (!onStore) {
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            "--store mooncake goes with --connector " + STORE_CONNECTOR);
                }
                yield Optional.of(MooncakeCluster.programs());
            }
            default ->
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG, "--store is none of owner, master and mooncake");
        };
    }

    @Override
    public int run(CommandProvider.Context context) throws InterruptedException {
        var options = context.options();
        var home =
                Path.of(
                        System.getProperty(
                                "kvferry.home", System.getProperty("user.home") + "/.kvferry"));
        var settings =
                new Demo.Settings(
                        options.string("runner"),
                        options.has("model")
                                ? Optional.of(options.path("model"))
                                : Optional.empty(),
                        home,
                        options.optionalString("connector"),
                        mooncake(options),
                        options.string("store").equals("master"),
                        context.pluginFolder(),
                        options.bool("keep"));
        long started = System.nanoTime();
        DemoReport report;
        try (var bar = new ProgressBar("demo", context.err())) {
            report = new Demo(settings, bar).run();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        var out = context.out();
        if (context.json()) {
            out.println(Json.pretty(report.toJson().put("seconds", seconds)));
        } else {
            report.print(out);
            out.printf(
                    "%n%s in %.1f s%n",
                    report.allMatch() ? "all tokens match" : "TOKENS DIFFER", seconds);
        }
        return report.allMatch() ? ALL_MATCH : TOKENS_DIFFER;
    }
}
