// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.PromptExchange;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.exchange.CacheExchange.Copied;

import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

import tools.jackson.databind.node.ArrayNode;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.Callable;

/// `kvferry import` and `kvferry export`: the stored cache of prompts, from and to folders of
/// another system. A prompt that fails does not stop the others.
abstract class ExchangeCommand implements Callable<Integer> {
    /// vLLM's ExampleConnector, by the name of the disk connector's layout.
    static final String DEFAULT_FORMAT = "vllm-example";

    @Parameters(paramLabel = "FOLDER", description = "The folder of the other system.")
    Path folder = Path.of("");

    @Mixin final PromptOptions prompts = new PromptOptions();

    @Mixin final EngineOptions engine = new EngineOptions();

    @Option(
            names = "--format",
            defaultValue = DEFAULT_FORMAT,
            description = "What the folder holds (default: ${DEFAULT-VALUE}).")
    String format = DEFAULT_FORMAT;

    @Option(
            names = "--timeout",
            paramLabel = "SECONDS",
            defaultValue = "60",
            description = "Longest time for one prompt (default: ${DEFAULT-VALUE}).")
    int timeoutSeconds = 60;

    @Option(names = "--json", description = "Print JSON.")
    boolean json;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    private int failed;
    private int blocks;
    private int written;

    /// Does the one or the other.
    abstract Copied copy(PromptExchange exchange, int[] tokens, Deadline deadline);

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when nothing can be copied, whatever the
    ///   prompt
    abstract void checkFolder();

    /// The verb of the summary for a copied prompt.
    abstract String done();

    @Override
    public Integer call() {
        if (timeoutSeconds < 1) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "--timeout must be at least 1, got " + timeoutSeconds);
        }
        checkFolder();
        var results = Json.object().putArray("prompts");
        int count;
        try (var exchange = PromptExchange.open(engine.settings(), format, folder)) {
            count = copyAll(exchange, results);
        }
        var out = spec.commandLine().getOut();
        if (json) {
            var report =
                    Json.object()
                            .put("folder", folder.toString())
                            .put("format", format)
                            .put("copied", count - failed)
                            .put("failed", failed)
                            .put("blocks", blocks)
                            .put("written", written);
            report.set("prompts", results);
            out.println(Json.text(report));
        } else {
            out.printf(
                    "%s %d of %d prompts: %d blocks, %d of them new there%n",
                    done(), count - failed, count, blocks, written);
        }
        out.flush();
        return failed == 0 ? ExitCode.OK : ExitCode.BAD_RESULT;
    }

    KvFerryException notAFolder() {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "FOLDER "
                        + folder
                        + (Files.exists(folder) ? " is not a folder" : " does not exist"));
    }

    private int copyAll(PromptExchange exchange, ArrayNode results) {
        var all = prompts.tokens(exchange.tokenizer());
        try (var bar = new ProgressBar(spec.name(), spec.commandLine().getErr())) {
            for (int i = 0; i < all.size(); i++) {
                var result = results.addObject().put("tokens", all.get(i).length);
                try {
                    var deadline = Deadline.in(Duration.ofSeconds(timeoutSeconds));
                    Copied copied = copy(exchange, all.get(i), deadline);
                    blocks += copied.blocks();
                    written += copied.written();
                    result.put("name", copied.name())
                            .put("blocks", copied.blocks())
                            .put("written", copied.written());
                    if (copied.blocks() == 0) {
                        bar.phase("prompt " + (i + 1) + " is too short to be kept anywhere");
                    }
                } catch (KvFerryException e) {
                    failed++;
                    result.put("error", e.code().name()).put("detail", e.getMessage());
                    bar.phase("prompt " + (i + 1) + ": " + e.getMessage());
                }
                bar.advance(i + 1, all.size());
            }
        }
        return all.size();
    }

    /// Into kvferry.
    @Command(
            name = "import",
            mixinStandardHelpOptions = true,
            description =
                    "Copies the KV of prompts from folders of vLLM's ExampleConnector into the store of a connector.")
    static final class Import extends ExchangeCommand {
        @Override
        void checkFolder() {
            if (!Files.isDirectory(folder)) {
                throw notAFolder();
            }
        }

        @Override
        Copied copy(PromptExchange exchange, int[] tokens, Deadline deadline) {
            return exchange.importPrompt(tokens, deadline);
        }

        @Override
        String done() {
            return "imported";
        }
    }

    /// Out of kvferry.
    @Command(
            name = "export",
            mixinStandardHelpOptions = true,
            description =
                    "Copies the KV of prompts from the store of a connector into folders that vLLM's ExampleConnector reads.")
    static final class Export extends ExchangeCommand {
        @Override
        void checkFolder() {
            if (Files.exists(folder) && !Files.isDirectory(folder)) {
                throw notAFolder();
            }
        }

        @Override
        Copied copy(PromptExchange exchange, int[] tokens, Deadline deadline) {
            return exchange.exportPrompt(tokens, deadline);
        }

        @Override
        String done() {
            return "exported";
        }
    }
}
