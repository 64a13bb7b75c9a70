// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// The chat templates that llama.cpp and TRL publish, rendered as transformers renders them.
@Tag("interop")
class PublishedTemplatesTest {
    @TempDir Path folder;

    private int agree;
    private int refused;
    private final List<String> differ = new ArrayList<>();

    @Test
    void renderAsInTransformers() throws IOException {
        var published =
                PublishedTokenizers.read(PublishedTokenizers.folder().resolve("templates.json"));
        Files.writeString(
                folder.resolve("tokenizer_config.json"), Json.text(published.path("specials")));
        var templates = published.path("templates");
        for (var template : templates.properties()) {
            Files.writeString(
                    folder.resolve("chat_template.jinja"), template.getValue().stringValue());
            var ours = JinjaChatTemplate.read(folder, () -> PublishedTokenizers.NOW).orElseThrow();
            var rendered = published.path("rendered").path(template.getKey());
            for (var conversation : published.path("conversations").properties()) {
                compare(
                        template.getKey() + ", " + conversation.getKey(),
                        ours,
                        PublishedTokenizers.messages(conversation.getValue()),
                        rendered.path(conversation.getKey()));
            }
        }
        System.out.println(
                templates.size()
                        + " published chat templates: "
                        + agree
                        + " renderings agree, "
                        + refused
                        + " both refuse, "
                        + differ.size()
                        + " differ");
        assertThat(templates).isNotEmpty();
        assertThat(differ).isEmpty();
    }

    private void compare(
            String what, JinjaChatTemplate ours, List<ChatMessage> messages, JsonNode theirs) {
        String text;
        try {
            text = ours.render(messages);
        } catch (KvFerryException e) {
            if (theirs.isNull()) {
                refused++;
            } else {
                differ.add(what + ": only we refuse: " + e.getMessage());
            }
            return;
        }
        if (theirs.isNull()) {
            differ.add(what + ": only transformers refuses; we render " + text);
        } else if (text.equals(theirs.stringValue())) {
            agree++;
        } else {
            differ.add(what + ": " + text + "\nin place of " + theirs.stringValue());
        }
    }
}
