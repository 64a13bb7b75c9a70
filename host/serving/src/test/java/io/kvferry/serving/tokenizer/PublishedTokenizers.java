// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.http.Json;

import org.junit.jupiter.api.Assumptions;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;

/// The files that `interop/tokenizers/prepare.py` has written into the folder that
/// `KVFERRY_TOKENIZERS` names; without it a test is skipped.
final class PublishedTokenizers {
    /// As in `interop/tokenizers/reference.py`.
    static final LocalDateTime NOW = LocalDateTime.of(2026, 3, 5, 14, 7, 9);

    private PublishedTokenizers() {}

    static Path folder() {
        var folder = System.getenv("KVFERRY_TOKENIZERS");
        Assumptions.assumeTrue(
                folder != null, "KVFERRY_TOKENIZERS is not set; interop/run tokenizers sets it");
        return Path.of(String.valueOf(folder));
    }

    static ObjectNode read(Path file) throws IOException {
        return Json.parseObject(Files.readAllBytes(file));
    }

    static List<ChatMessage> messages(JsonNode conversation) {
        var messages = new ArrayList<ChatMessage>();
        for (var message : conversation) {
            messages.add(
                    new ChatMessage(
                            message.path("role").asString(),
                            message.path("content").asString(),
                            message.path("name").asString("")));
        }
        return messages;
    }
}
