// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// Defaults for fields that a request leaves out, from the model's `generation_config.json`, read
/// as vLLM does.
///
/// @param maxTokens most tokens of an answer; 0 when the file says nothing
/// @param endTokens that end an answer beside those of the model's configuration
public record SamplingDefaults(
        double temperature,
        double topP,
        int topK,
        double minP,
        double repetitionPenalty,
        int maxTokens,
        List<Integer> endTokens) {
    /// OpenAI's.
    public static final SamplingDefaults NONE = new SamplingDefaults(1, 1, 0, 0, 1, 0, List.of());

    public SamplingDefaults {
        endTokens = List.copyOf(endTokens);
    }

    /// Reads the file in a model folder; [#NONE] without one.
    ///
    /// @throws KvFerryException BAD_CONFIG when it holds something else
    public static SamplingDefaults read(Path modelFolder) {
        var file = modelFolder.resolve("generation_config.json");
        byte[] bytes;
        try {
            bytes = Files.readAllBytes(file);
        } catch (NoSuchFileException e) {
            return NONE;
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + file, e);
        }
        try {
            var json = Json.readObject(bytes);
            double temperature = BodyFields.number(json, "temperature", 1);
            return new SamplingDefaults(
                    temperature,
                    BodyFields.number(json, "top_p", 1),
                    Math.max(0, (int) BodyFields.integer(json, "top_k", 0)),
                    BodyFields.number(json, "min_p", 0),
                    BodyFields.number(json, "repetition_penalty", 1),
                    (int) BodyFields.integer(json, "max_new_tokens", 0),
                    endTokens(json.path("eos_token_id")));
        } catch (HttpProblem | IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, file + ": " + e.getMessage(), e);
        }
    }

    /// One id, or several.
    private static List<Integer> endTokens(JsonNode ids) {
        if (BodyFields.isAbsent(ids)) {
            return List.of();
        }
        var array = ids.isArray() ? ids : Json.object().arrayNode().add(ids);
        RequestCheck.tokenIds("eos_token_id", array);
        var list = new ArrayList<Integer>();
        array.forEach(id -> list.add(id.intValue()));
        return list;
    }
}
