// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/// Templates in the manner of Qwen (`chatml`), SmolLM (`one-line`) and Llama 3.1 (`headers`),
/// rendered as Python's Jinja renders them with Hugging Face's settings; its output is in
/// `golden.json`.
class ChatTemplateTest {
    @TempDir Path folder;

    private static String resource(String name) throws IOException {
        try (var in = ChatTemplateTest.class.getResourceAsStream("/chat-templates/" + name)) {
            return new String(
                    Objects.requireNonNull(in, name).readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static List<ChatMessage> messages(JsonNode conversation) {
        var messages = new ArrayList<ChatMessage>();
        conversation.forEach(message ->
                messages.add(
                        new ChatMessage(
                                message.path("role").asString(),
                                message.path("content").asString())));
        return messages;
    }

    private void write(String file, String text) throws IOException {
        Files.writeString(folder.resolve(file), text);
    }

    private JinjaChatTemplate template() {
        return JinjaChatTemplate.read(folder).orElseThrow();
    }

    @ParameterizedTest
    @ValueSource(strings = {"chatml", "one-line", "headers"})
    void rendersAsHuggingFaceDoes(String name) throws IOException {
        var golden = Json.parseObject(resource("golden.json").getBytes(StandardCharsets.UTF_8));
        write(
                "tokenizer_config.json",
                "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}");
        write("chat_template.jinja", resource(name + ".jinja"));
        for (var conversation : golden.path("conversations").properties()) {
            assertThat(template().render(messages(conversation.getValue())))
                    .as(conversation.getKey())
                    .isEqualTo(
                            golden.path("rendered")
                                    .path(name)
                                    .path(conversation.getKey())
                                    .asString());
        }
    }

    @Test
    void readsTheTemplateFromTheTokenizersConfig() throws IOException {
        assertThat(JinjaChatTemplate.read(folder)).isEmpty();
        var named = Json.object();
        var list = named.putArray("chat_template");
        list.addObject().put("name", "tool_use").put("template", "T");
        list.addObject().put("name", "default").put("template", "D {{ messages[0].content }}");
        write("tokenizer_config.json", Json.text(named));
        var hello = List.of(new ChatMessage("user", "hello"));
        assertThat(template().render(hello)).isEqualTo("D hello");
        write("tokenizer_config.json", "{\"chat_template\": \"S {{ messages[0]['role'] }}\"}");
        assertThat(template().render(hello)).isEqualTo("S user");
        write("tokenizer_config.json", "{");
        assertThatThrownBy(this::template).isInstanceOf(KvFerryException.class);
    }

    @Test
    void saysWhyATemplateRefusesMessages() throws IOException {
        write("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
        write("chat_template.jinja", resource("headers.jinja"));
        var wrong = List.of(new ChatMessage("user", "a"), new ChatMessage("system", "b"));
        assertThatThrownBy(() -> template().render(wrong))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("only user and assistant may speak");
    }

    @Test
    void templatesMayAskWhetherThereIsADate() throws IOException {
        write(
                "chat_template.jinja",
                "{%- if strftime_now is defined %}{{- strftime_now('%Y') }}{%- else %}{{- 'none' }}{%- endif %}");
        assertThat(template().render(List.of(new ChatMessage("user", "hello"))))
                .matches("2[0-9]{3}");
    }
}
