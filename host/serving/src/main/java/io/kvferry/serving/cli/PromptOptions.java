// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.engine.model.Tokenizer;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import picocli.CommandLine.Option;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// The options that name prompts.
final class PromptOptions {
    @Option(
            names = "--prompt",
            paramLabel = "TEXT",
            description = "A prompt, as /v1/completions takes it; may be repeated.")
    List<String> prompts = new ArrayList<>();

    @Option(
            names = "--prompts",
            paramLabel = "FILE",
            description =
                    "A file with one JSON object per line: {\"prompt\": \"text\"} or {\"prompt\": [token ids]}.")
    Optional<Path> file = Optional.empty();

    /// Token ids of all prompts, those of the command line first.
    List<int[]> tokens(Tokenizer tokenizer) {
        var all = new ArrayList<int[]>();
        prompts.forEach(text -> all.add(tokenizer.encode(text)));
        file.ifPresent(path -> read(path, tokenizer, all));
        if (all.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "no prompt given: stored caches are found by their prompts, use --prompt or --prompts");
        }
        return all;
    }

    private static void read(Path path, Tokenizer tokenizer, List<int[]> all) {
        int number = 0;
        try {
            for (String line : Files.readAllLines(path)) {
                number++;
                if (!line.isBlank()) {
                    all.add(tokens(line, tokenizer));
                }
            }
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    FileTrouble.describe("--prompts: cannot read " + path, e),
                    e);
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--prompts: line " + number + " of " + path + " is " + e.getMessage(),
                    e);
        }
    }

    private static int[] tokens(String line, Tokenizer tokenizer) {
        JsonNode prompt = Json.readObject(line.getBytes(StandardCharsets.UTF_8)).path("prompt");
        if (prompt.isString()) {
            return tokenizer.encode(prompt.stringValue());
        }
        if (!prompt.isArray() || prompt.isEmpty()) {
            throw new IllegalArgumentException(
                    "not a prompt: \"prompt\" must be a string or an array of token ids");
        }
        var ids = new int[prompt.size()];
        for (int i = 0; i < ids.length; i++) {
            JsonNode id = prompt.get(i);
            if (!id.isIntegralNumber() || !id.canConvertToInt() || id.intValue() < 0) {
                throw new IllegalArgumentException(
                        "not a prompt: prompt[" + i + "] is no token id: " + id);
            }
            ids[i] = id.intValue();
        }
        return ids;
    }
}
