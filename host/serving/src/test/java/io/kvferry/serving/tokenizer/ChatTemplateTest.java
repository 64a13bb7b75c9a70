// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.engine.model.Tokenizer.ChatOptions;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;

/// Templates of real models (`models/`) and in the manner of others, which may not be copied: Llama
/// 3.1 (`headers`) and 3.2 (`llama32`), Gemma (`turns`). Python's Jinja renders them with Hugging
/// Face's settings into `golden.json`: `interop/tokenizers/golden.py`.
class ChatTemplateTest {
    /// As in `interop/tokenizers/reference.py`.
    private static final LocalDateTime NOW = LocalDateTime.of(2026, 3, 5, 14, 7, 9);

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
                                message.path("content").asString(),
                                message.path("name").asString(""))));
        return messages;
    }

    private void write(String file, String text) throws IOException {
        Files.writeString(folder.resolve(file), text);
    }

    private JinjaChatTemplate template() {
        return JinjaChatTemplate.read(folder, () -> NOW).orElseThrow();
    }

    private static ObjectNode golden() throws IOException {
        return Json.parseObject(resource("golden.json").getBytes(StandardCharsets.UTF_8));
    }

    private static Stream<String> templates() throws IOException {
        return golden().path("rendered").propertyStream().map(Map.Entry::getKey);
    }

    @ParameterizedTest
    @MethodSource("templates")
    void rendersAsHuggingFaceDoes(String name) throws IOException {
        var golden = golden();
        write("tokenizer_config.json", Json.text(golden.path("specials")));
        write("chat_template.jinja", resource(name));
        for (var conversation : golden.path("conversations").properties()) {
            var expected = golden.path("rendered").path(name).path(conversation.getKey());
            var messages = messages(conversation.getValue());
            if (expected.isNull()) {
                assertThatThrownBy(() -> template().render(messages))
                        .as(conversation.getKey())
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
            } else {
                assertThat(template().render(messages))
                        .as(conversation.getKey())
                        .isEqualTo(expected.asString());
            }
        }
    }

    @Test
    void takesSpecialTokensThatAreObjects() throws IOException {
        write(
                "tokenizer_config.json",
                "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}");
        write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ pad_token }}");
        assertThat(template().render(List.of(new ChatMessage("user", "x")))).isEqualTo("<s></s>");
    }

    @Test
    void aTemplateThatCannotBeUsedIsRefusedByName() throws IOException {
        write("chat_template.jinja", "{% include 'other' %}");
        assertThatThrownBy(() -> template().render(List.of(new ChatMessage("user", "x"))))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED))
                .hasMessageContaining("the tag include is not supported")
                .hasMessageContaining("use completions");
    }

    @Test
    void formatsTheTimeAsPythonDoes() throws IOException {
        write(
                "chat_template.jinja",
                "{{ strftime_now('%A %B %y %m %H:%M:%S %j %I %p %a %% %d %b %Y') }}");
        var user = List.of(new ChatMessage("user", "x"));
        assertThat(template().render(user))
                .isEqualTo("Thursday March 26 03 14:07:09 064 02 PM Thu % 05 Mar 2026");
        write("chat_template.jinja", "{{ strftime_now('%G') }}");
        assertThatThrownBy(() -> template().render(user)).hasMessageContaining("%G");
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

    private static ChatOptions options(boolean opens, boolean continues) {
        return new ChatOptions(opens, continues, false, Map.of());
    }

    @Test
    void beginsNoAnswerWhereNoneIsWanted() throws IOException {
        write("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
        write("chat_template.jinja", resource("headers.jinja"));
        var user = List.of(new ChatMessage("user", "hello"));
        var whole = template().render(user);
        var open = template().render(user, options(false, false));
        assertThat(whole).startsWith(open).hasSizeGreaterThan(open.length());
    }

    /// Compared with Hugging Face, for templates that trim messages and for those that do not.
    @Test
    void endsInTheLastMessageWhereThatIsToBeContinued() throws IOException {
        var turns =
                List.of(new ChatMessage("user", "Sum?"), new ChatMessage("assistant", "It is "));
        write(
                "chat_template.jinja",
                "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
        assertThat(template().render(turns, options(false, true)))
                .isEqualTo("<user>Sum?</s><assistant>It is ");
        write(
                "chat_template.jinja",
                "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}");
        assertThat(template().render(turns, options(false, true)))
                .isEqualTo("<user>Sum?</s><assistant>It is");
        write("chat_template.jinja", "{{ messages[0].content }}");
        assertThatThrownBy(() -> template().render(turns, options(false, true)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST))
                .hasMessageContaining("continue_final_message");
    }

    @Test
    void seesTheVariablesOfTheRequest() throws IOException {
        write(
                "chat_template.jinja",
                "{% if enable_thinking is defined and not enable_thinking %}no{% else %}yes{% endif %}{% for d in documents or [] %} {{ d.title }}{% endfor %}");
        var user = List.of(new ChatMessage("user", "x"));
        assertThat(template().render(user)).isEqualTo("yes");
        var variables =
                Map.<String, Object>of(
                        "enable_thinking", false, "documents", List.of(Map.of("title", "T")));
        assertThat(template().render(user, new ChatOptions(true, false, false, variables)))
                .isEqualTo("no T");
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
