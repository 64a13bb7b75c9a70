// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Finding;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Callable;

/// `kvferry doctor`: what this machine has and lacks.
@Command(
        name = "doctor",
        mixinStandardHelpOptions = true,
        description =
                "Says what this machine has and lacks for kvferry, and how to get it. Exit code 1 when something"
                        + " needed is missing; what is optional never counts.")
final class DoctorCommand implements Callable<Integer> {
    @Option(
            names = "--folder",
            paramLabel = "FOLDER",
            defaultValue = "${sys:java.io.tmpdir}",
            description =
                    "Folder of a disk cache, to look at its file system (default: ${DEFAULT-VALUE}).")
    Path folder = Path.of("");

    @Option(
            names = {"--plugin-folder", "--plugin-dir"},
            paramLabel = "FOLDER",
            description = "More plugins that look at this machine: one sub-folder of jars each.")
    Optional<Path> pluginFolder = Optional.empty();

    @Option(names = "--json", description = "Print JSON.")
    boolean json;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    @Override
    public Integer call() {
        List<Finding> findings;
        try (var catalog = AssembledEngine.catalog(pluginFolder)) {
            findings = new Checkup(catalog, folder).run();
        }
        var out = spec.commandLine().getOut();
        if (json) {
            var array = Json.object().putArray("checks");
            findings.forEach(f ->
                    array.addObject()
                            .put("what", f.what())
                            .put("state", f.state().name().toLowerCase(Locale.ROOT))
                            .put("found", f.found())
                            .put("remedy", f.remedy()));
            out.println(Json.pretty(array));
        } else {
            print(out, findings);
        }
        out.flush();
        boolean broken = findings.stream().anyMatch(f -> f.state() == Finding.State.MISSING);
        return broken ? ExitCode.BAD_RESULT : ExitCode.OK;
    }

    private static void print(PrintWriter out, List<Finding> findings) {
        for (var f : findings) {
            var mark =
                    switch (f.state()) {
                        case OK -> "ok";
                        case OPTIONAL -> "-";
                        case MISSING -> "MISSING";
                    };
            out.printf("%-8s %-30s %s%n", mark, f.what(), f.found());
            if (!f.remedy().isEmpty()) {
                out.printf("%-8s %-30s %s%n", "", "", f.remedy());
            }
        }
    }
}
