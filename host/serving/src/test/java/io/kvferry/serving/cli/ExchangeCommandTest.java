// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.LookupResult;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// `kvferry export` and `kvferry import` between engines that really compute.
class ExchangeCommandTest {
    private static final String PROMPT =
            "It was the best of times, it was the worst of times, it was the age of wisdom";
    private static final int BLOCK = 16;

    @TempDir Path folder;
    private Path model;

    record Ran(int code, String out, String err) {
        JsonNode json() {
            return Json.parseObject(out.getBytes(StandardCharsets.UTF_8));
        }
    }

    @BeforeEach
    void makeModel() {
        model = folder.resolve("model");
        MakeModelCommand.makeDefault(model);
    }

    private String config(String store) {
        var path = folder.resolve(store).toString();
        return Json.text(
                Json.tree(
                        Map.of(
                                "kv_connector",
                                "DiskConnector",
                                "kv_role",
                                "kv_both",
                                "kv_connector_extra_config",
                                Map.of("shared_storage_path", path, "reserve", 0))));
    }

    private Outcome.Finished generate(String store) {
        var base = EngineSettings.of("llama", model);
        var settings =
                new EngineSettings(
                        base.runner(),
                        base.model(),
                        base.runnerOptions(),
                        Optional.of(ConfigText.of(Family.KV, config(store))),
                        Optional.empty(),
                        Optional.empty(),
                        BLOCK,
                        64,
                        1,
                        false,
                        base.stepTokens(),
                        base.maxRunning(),
                        base.holdPatience(),
                        true,
                        "",
                        0,
                        Kvferry.STAGING_BYTES);
        try (var assembled = AssembledEngine.start(settings)) {
            var engine = assembled.engine();
            var request =
                    GenerationRequest.of(
                            engine.tokenizer().encode(PROMPT),
                            SamplingParams.greedy(12).withIgnoreEos(true));
            var outcome = engine.submit(request).await(Deadline.in(Duration.ofSeconds(60)));
            assertThat(outcome).containsInstanceOf(Outcome.Finished.class);
            return (Outcome.Finished) outcome.orElseThrow();
        } // closing lets the saves end
    }

    private Ran exchange(String command, String store, String... more) {
        var args =
                new ArrayList<>(
                        List.of(
                                command,
                                folder.resolve("vllm").toString(),
                                "--runner",
                                "llama",
                                "--model",
                                model.toString(),
                                "--block-size",
                                BLOCK + "",
                                "--kv-transfer-config",
                                config(store)));
        args.addAll(List.of(more));
        return run(args.toArray(String[]::new));
    }

    private static Ran run(String... args) {
        var out = new StringWriter();
        var err = new StringWriter();
        int code =
                Main.commandLine(ContributedCommands.find(List.of()))
                        .setOut(new PrintWriter(out))
                        .setErr(new PrintWriter(err))
                        .execute(args);
        return new Ran(code, out.toString(), err.toString());
    }

    @Test
    void carriesAPromptToAnotherEngineThroughAFolderOfVllm() throws IOException {
        var computed = generate("first");
        int blocks = (computed.usage().promptTokens() - 1) / BLOCK;
        assertThat(blocks).isGreaterThan(1);

        var exported = exchange("export", "first", "--json", "--prompt", PROMPT);
        assertThat(exported.code()).as(exported.err()).isZero();
        assertThat(exported.json().path("written").intValue()).isEqualTo(blocks);
        var name = exported.json().path("prompts").path(0).path("name").stringValue();
        assertThat(name).matches("[0-9a-f]{32}");
        assertThat(folder.resolve("vllm").resolve(name))
                .isDirectoryContaining("glob:**/model.layers.0.self_attn.attn.safetensors");

        var prompts = folder.resolve("prompts.jsonl");
        Files.writeString(prompts, Json.text(Json.object().put("prompt", PROMPT)) + "\n");
        var imported = exchange("import", "second", "--json", "--prompts", prompts.toString());
        assertThat(imported.code()).as(imported.err()).isZero();
        assertThat(imported.json().path("written").intValue()).isEqualTo(blocks);
        var again = exchange("import", "second", "--prompts", prompts.toString());
        assertThat(again.out())
                .isEqualToIgnoringNewLines(
                        "imported 1 of 1 prompts: " + blocks + " blocks, 0 of them new there");

        var loaded = generate("second");
        assertThat(loaded.tokens()).isEqualTo(computed.tokens());
        assertThat(loaded.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum())
                .isEqualTo(blocks * BLOCK);
        assertThat(computed.usage().external()).isEmpty();
    }

    @Test
    void saysWhichPromptsWereNotThereAndGoesOn() throws IOException {
        Files.createDirectory(folder.resolve("vllm"));
        var missing =
                exchange("import", "first", "--json", "--prompt", PROMPT, "--prompt", "short");
        assertThat(missing.code()).isEqualTo(ExitCode.BAD_RESULT);
        assertThat(missing.json().path("failed").intValue()).isEqualTo(1);
        assertThat(missing.json().path("prompts").path(0).path("error").stringValue())
                .isEqualTo("MISS");
        assertThat(missing.json().path("prompts").path(1).path("blocks").intValue()).isZero();
        assertThat(missing.err()).contains("prompt 1: ", "prompt 2 is too short");
        assertThat(exchange("export", "first", "--prompt", PROMPT).code())
                .isEqualTo(ExitCode.BAD_RESULT);
    }

    @Test
    void refusesWhatCannotWorkInOneReadableLine() throws IOException {
        assertRefused(exchange("export", "first"), "--prompt");
        assertRefused(
                exchange("export", "first", "--prompt", PROMPT, "--format", "lmcache"),
                "lmcache",
                "vllm-example");
        assertRefused(
                exchange("export", "first", "--prompt", PROMPT, "--tp", "2"), "one rank", "2");
        var broken = folder.resolve("prompts.jsonl");
        Files.writeString(broken, "{\"prompt\": \"fine\"}\n{\"prompt\": 7}\n");
        Files.createDirectory(folder.resolve("vllm"));
        assertRefused(
                exchange("import", "first", "--prompts", broken.toString()),
                "--prompts: line 2 of " + broken + " is not a prompt");
        for (var text : List.of("{\"prompt\": \"fine\"}\n\n{\"prompt\": \"", "[1]", "{} {}")) {
            Files.writeString(broken, text);
            var refused = exchange("import", "first", "--prompts", broken.toString());
            assertRefused(
                    refused,
                    "--prompts: line " + text.lines().count() + " of " + broken + " is not ");
            assertThat(refused.err()).doesNotContain("body");
        }
        var other = model.toString();
        assertRefused(
                run("import", other, "--runner", "llama", "--model", model.toString()),
                "--kv-transfer-config");
        assertRefused(
                run(
                        "import",
                        other,
                        "--runner",
                        "llama",
                        "--model",
                        model.toString(),
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"MooncakeConnector\", \"kv_role\": \"kv_both\"}"),
                "MooncakeConnector cannot copy");
    }

    /// Also where each prompt is too short to be looked for.
    @Test
    void refusesAFolderThatIsNone() throws IOException {
        var none = folder.resolve("vllm");
        for (var prompt : List.of(PROMPT, "short")) {
            assertRefused(
                    exchange("import", "first", "--prompt", prompt),
                    "FOLDER " + none + " does not exist");
        }
        assertThat(folder.resolve("first")).as("nothing was opened").doesNotExist();
        Files.createFile(none);
        for (var command : List.of("import", "export")) {
            assertRefused(
                    exchange(command, "first", "--prompt", PROMPT),
                    "FOLDER " + none + " is not a folder");
        }
    }

    private static void assertRefused(Ran ran, String... parts) {
        assertThat(ran.code()).as(ran.err()).isEqualTo(ExitCode.USAGE);
        assertThat(ran.err().strip().lines()).as(ran.err()).hasSize(1);
        assertThat(ran.err()).contains(parts).doesNotContain("Exception");
    }
}
