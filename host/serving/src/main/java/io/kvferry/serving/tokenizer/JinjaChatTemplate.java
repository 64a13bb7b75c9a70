// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.engine.model.Tokenizer.ChatOptions;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.jinja.Callee;
import io.kvferry.serving.jinja.Template;
import io.kvferry.serving.jinja.TemplateException;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/// A model's own chat template: `chat_template.jinja`, or `chat_template` in
/// `tokenizer_config.json`, rendered as Hugging Face's `apply_chat_template` does, without tools.
///
/// Threading: immutable; any thread.
final class JinjaChatTemplate {
    private static final Logger LOG = LoggerFactory.getLogger(JinjaChatTemplate.class);
    private static final int MAX_OUTPUT = 64 << 20;

    /// The special tokens that templates may name.
    private static final List<String> SPECIALS =
            List.of(
                    "bos_token",
                    "eos_token",
                    "unk_token",
                    "sep_token",
                    "pad_token",
                    "cls_token",
                    "mask_token");

    /// Marks the end of the message that is to be continued; whether the template trims what
    /// follows shows at the space.
    private static final String CONTINUE = "CONTINUE_FINAL_MESSAGE_TAG ";

    private final Path folder;
    private final Map<String, String> specials;
    private final Supplier<LocalDateTime> now;
    private final @Nullable Template template;

    /// Why there is none.
    private final String problem;

    private JinjaChatTemplate(
            Path folder, String source, Map<String, String> specials, Supplier<LocalDateTime> now) {
        this.folder = folder;
        this.specials = Map.copyOf(specials);
        this.now = now;
        Template parsed = null;
        var why = "";
        try {
            parsed = Template.parse(source);
        } catch (TemplateException e) {
            why = String.valueOf(e.getMessage());
            LOG.warn(
                    "the chat template of {} cannot be used, /v1/chat/completions is refused: {}",
                    folder,
                    why);
        }
        template = parsed;
        problem = why;
    }

    /// The template of a model folder; empty when it has none.
    ///
    /// @throws KvFerryException BAD_CONFIG when a file of it is broken
    static Optional<JinjaChatTemplate> read(Path folder) {
        return read(folder, LocalDateTime::now);
    }

    /// @param now what `strftime_now` formats
    static Optional<JinjaChatTemplate> read(Path folder, Supplier<LocalDateTime> now) {
        try {
            var config = config(folder.resolve("tokenizer_config.json"));
            var specials = new HashMap<String, String>();
            for (var name : SPECIALS) {
                text(config.path(name)).ifPresent(token -> specials.put(name, token));
            }
            var file = folder.resolve("chat_template.jinja");
            var source =
                    Files.exists(file)
                            ? Optional.of(Files.readString(file))
                            : template(config.path("chat_template"));
            return source.map(text -> new JinjaChatTemplate(folder, text, specials, now));
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read the chat template of " + folder, e);
        }
    }

    private static ObjectNode config(Path file) throws IOException {
        if (!Files.exists(file)) {
            return Json.object();
        }
        try {
            return Json.readObject(Files.readAllBytes(file));
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, file + " is " + e.getMessage(), e);
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

    /// All turns, then the opening of the assistant's answer.
    String render(List<ChatMessage> messages) {
        return render(messages, ChatOptions.DEFAULT);
    }

    /// The prompt.
    ///
    /// @throws KvFerryException INVALID_REQUEST when the template refuses the messages, UNSUPPORTED
    ///   when it cannot be used at all
    String render(List<ChatMessage> messages, ChatOptions options) {
        if (template == null) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "the chat template of "
                            + folder.getFileName()
                            + " cannot be used here: "
                            + problem
                            + "; use completions");
        }
        var variables = new HashMap<String, @Nullable Object>(specials);
        variables.put("documents", null);
        variables.putAll(options.variables());
        var turns = options.continueFinalMessage() ? marked(messages) : messages;
        variables.put("messages", turns.stream().map(JinjaChatTemplate::variables).toList());
        variables.put("tools", null);
        variables.put("add_generation_prompt", options.addGenerationPrompt());
        variables.put("raise_exception", (Callee) JinjaChatTemplate::raise);
        variables.put("strftime_now", (Callee) this::strftime);
        try {
            var text = template.render(variables, MAX_OUTPUT);
            return options.continueFinalMessage() ? continued(text) : text;
        } catch (TemplateException e) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "the chat template of "
                            + folder.getFileName()
                            + " does not take these messages: "
                            + e.getMessage(),
                    e);
        }
    }

    private static List<ChatMessage> marked(List<ChatMessage> messages) {
        var last = messages.getLast();
        var turns = new ArrayList<>(messages);
        turns.set(
                turns.size() - 1,
                new ChatMessage(last.role(), last.content() + CONTINUE, last.name()));
        return turns;
    }

    /// The prompt up to the end of the last message's text.
    private static String continued(String text) {
        int at = text.lastIndexOf(CONTINUE.strip());
        if (at < 0) {
            throw new TemplateException(
                    "continue_final_message: the last message is not in the prompt as it is");
        }
        return text.startsWith(CONTINUE, at)
                ? text.substring(0, at)
                : text.substring(0, at).stripTrailing(); // the template trims messages
    }

    private static Map<String, String> variables(ChatMessage message) {
        var map = new LinkedHashMap<String, String>();
        map.put("role", message.role());
        map.put("content", message.content());
        if (!message.name().isEmpty()) {
            map.put("name", message.name());
        }
        return map;
    }

    /// `raise_exception`, which templates call to refuse messages.
    private static Object raise(List<Object> arguments, Map<String, Object> named) {
        throw new TemplateException(
                arguments.isEmpty() ? "it gives no reason" : String.valueOf(arguments.getFirst()));
    }

    /// The present time, in Python's patterns.
    private Object strftime(List<Object> arguments, Map<String, Object> named) {
        if (arguments.size() != 1 || !(arguments.getFirst() instanceof String pattern)) {
            throw new TemplateException("strftime_now takes a pattern");
        }
        var time = now.get();
        var out = new StringBuilder();
        for (int i = 0; i < pattern.length(); i++) {
            char c = pattern.charAt(i);
            if (c != '%' || i + 1 == pattern.length()) {
                out.append(c);
                continue;
            }
            char code = pattern.charAt(++i);
            var java =
                    switch (code) {
                        case 'a' -> "EEE";
                        case 'A' -> "EEEE";
                        case 'b' -> "MMM";
                        case 'B' -> "MMMM";
                        case 'd' -> "dd";
                        case 'H' -> "HH";
                        case 'I' -> "hh";
                        case 'j' -> "DDD";
                        case 'm' -> "MM";
                        case 'M' -> "mm";
                        case 'p' -> "a";
                        case 'S' -> "ss";
                        case 'y' -> "uu";
                        case 'Y' -> "uuuu";
                        case '%' -> "'%'";
                        default ->
                                throw new TemplateException(
                                        "the pattern %" + code + " of strftime_now is not known");
                    };
            out.append(DateTimeFormatter.ofPattern(java, Locale.ENGLISH).format(time));
        }
        return out.toString();
    }
}
