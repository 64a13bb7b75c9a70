// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.demo.Demo;
import io.kvferry.serving.demo.DemoReport;
import io.kvferry.serving.http.Json;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.Callable;

/// `kvferry demo`.
@Command(
        name = "demo",
        mixinStandardHelpOptions = true,
        description =
                "Serves bundled prompts through a prefill and a decode process, and compares every token with a run"
                        + " in one process. Exit code 0 when all are the same, 1 when not.")
final class DemoCommand implements Callable<Integer> {
    @Option(
            names = "--runner",
            defaultValue = "jlama",
            description = "Model runner (default: ${DEFAULT-VALUE}).")
    String runner = "jlama";

    @Option(
            names = "--model",
            paramLabel = "FOLDER",
            description = "Hugging Face model folder (default: a tiny one, made if absent).")
    Optional<Path> model = Optional.empty();

    @Option(
            names = "--connector",
            paramLabel = "NAME",
            description = "Connector that stands before DiskConnector, e.g. MooncakeConnector.")
    Optional<String> connector = Optional.empty();

    @Option(names = "--keep", description = "Keep the working folder with disk cache and logs.")
    boolean keep;

    @Option(names = "--json", description = "Print the report as JSON.")
    boolean json;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    @Override
    public Integer call() throws InterruptedException {
        var err = spec.commandLine().getErr();
        var home =
                Path.of(
                        System.getProperty(
                                "kvferry.home", System.getProperty("user.home") + "/.kvferry"));
        var settings = new Demo.Settings(runner, model, home, connector, keep);
        long started = System.nanoTime();
        DemoReport report;
        try (var bar = new ProgressBar("demo", err)) {
            report = new Demo(settings, bar).run();
        }
        var out = spec.commandLine().getOut();
        if (json) {
            out.println(
                    Json.pretty(
                            report.toJson().put("seconds", (System.nanoTime() - started) / 1e9)));
        } else {
            report.print(out);
            out.printf(
                    "%n%s in %.1f s%n",
                    report.allMatch() ? "all tokens match" : "TOKENS DIFFER",
                    (System.nanoTime() - started) / 1e9);
        }
        out.flush();
        return report.allMatch() ? ExitCode.OK : ExitCode.BAD_RESULT;
    }
}
