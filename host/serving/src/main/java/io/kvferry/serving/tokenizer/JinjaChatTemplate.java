// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import com.hubspot.jinjava.Jinjava;
import com.hubspot.jinjava.JinjavaConfig;
import com.hubspot.jinjava.LegacyOverrides;
import com.hubspot.jinjava.interpret.TemplateError;
import com.hubspot.jinjava.lib.fn.ELFunctionDefinition;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// A model's own chat template: `chat_template.jinja`, or `chat_template` in
/// `tokenizer_config.json`, rendered as Hugging Face's `apply_chat_template` does.
///
/// Threading: immutable; any thread.
final class JinjaChatTemplate {
    private static final int MAX_OUTPUT = 64 << 20;

    private final Path folder;
    private final String source;
    private final Map<String, String> specials;
    private final Jinjava jinjava;

    private JinjaChatTemplate(Path folder, String source, Map<String, String> specials) {
        this.folder = folder;
        this.source = source;
        this.specials = Map.copyOf(specials);
        var strict =
                LegacyOverrides.newBuilder()
                        .withUsePyishObjectMapper(true)
                        .withUseSnakeCasePropertyNaming(true)
                        .withParseWhitespaceControlStrictly(true)
                        .withUseTrimmingForNotesAndExpressions(true)
                        .withKeepNullableLoopValues(true)
                        .build();
        // Blocks are trimmed as Hugging Face sets Jinja up; what a message contains is never a
        // template itself.
        var config =
                JinjavaConfig.newBuilder()
                        .withTrimBlocks(true)
                        .withLstripBlocks(true)
                        .withNestedInterpretationEnabled(false)
                        .withMaxOutputSize(MAX_OUTPUT)
                        .withLegacyOverrides(strict)
                        .build();
        jinjava = new Jinjava(config);
        var global = jinjava.getGlobalContext();
        global.registerFunction(
                new ELFunctionDefinition(
                        "", "raise_exception", JinjaChatTemplate.class, "raise", String.class));
        global.registerFunction(
                new ELFunctionDefinition(
                        "", "strftime_now", JinjaChatTemplate.class, "strftime", String.class));
    }

    /// The template of a model folder; empty when it has none.
    ///
    /// @throws KvFerryException BAD_CONFIG when a file of it is broken
    static Optional<JinjaChatTemplate> read(Path folder) {
        try {
            var config = config(folder.resolve("tokenizer_config.json"));
            var specials = new HashMap<String, String>();
            for (var name : new String[] {"bos_token", "eos_token", "unk_token", "pad_token"}) {
                text(config.path(name)).ifPresent(token -> specials.put(name, token));
            }
            var file = folder.resolve("chat_template.jinja");
            var source =
                    Files.exists(file)
                            ? Optional.of(Files.readString(file))
                            : template(config.path("chat_template"));
            return source.map(text -> new JinjaChatTemplate(folder, text, specials));
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read the chat template of " + folder, e);
        }
    }

    private static ObjectNode config(Path file) throws IOException {
        if (!Files.exists(file)) {
            return Json.object();
        }
        try {
            return Json.parseObject(Files.readAllBytes(file));
        } catch (HttpProblem e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, file + ": " + e.getMessage(), e);
        }
    }

    /// One text, or several by name, of which one is `default`.
    private static Optional<String> template(JsonNode node) {
        for (var named : node) {
            if ("default".equals(named.path("name").asString(""))) {
                return text(named.path("template"));
            }
        }
        return text(node);
    }

    /// Tokens are a text, or an object with their content.
    private static Optional<String> text(JsonNode node) {
        var value = node.isObject() ? node.path("content") : node;
        return value.isString() ? Optional.of(value.stringValue()) : Optional.empty();
    }

    /// The prompt: all turns, then the opening of the assistant's answer.
    ///
    /// @throws KvFerryException INVALID_REQUEST when the template refuses the messages
    String render(List<ChatMessage> messages) {
        var bindings = new HashMap<String, Object>(specials);
        bindings.put(
                "messages",
                messages.stream()
                        .map(m -> Map.of("role", m.role(), "content", m.content()))
                        .toList());
        bindings.put("add_generation_prompt", true);
        // Jinjava knows functions apart from variables, and templates ask whether they are defined.
        bindings.put("strftime_now", true);
        bindings.put("raise_exception", true);
        var result = jinjava.renderForResult(source, bindings);
        if (result.hasErrors()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "the chat template of "
                            + folder.getFileName()
                            + " does not take these messages: "
                            + why(result.getErrors().getFirst()));
        }
        return result.getOutput();
    }

    /// What the template itself said, where it raised the error.
    private static String why(TemplateError error) {
        for (Throwable cause = error.getException(); cause != null; cause = cause.getCause()) {
            if (cause instanceof Refusal) {
                return String.valueOf(cause.getMessage());
            }
        }
        return error.getMessage();
    }

    /// An error that a template raises.
    private static final class Refusal extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Refusal(String message) {
            super(message);
        }
    }

    /// What templates call to refuse messages.
    public static String raise(String message) {
        throw new Refusal(message);
    }

    /// Today's date, in those of Python's patterns that templates use.
    public static String strftime(String pattern) {
        var java =
                pattern.replace("%d", "dd")
                        .replace("%b", "MMM")
                        .replace("%B", "MMMM")
                        .replace("%Y", "yyyy")
                        .replace("%m", "MM");
        return LocalDate.now().format(DateTimeFormatter.ofPattern(java, Locale.ENGLISH));
    }
}
