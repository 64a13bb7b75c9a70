// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.kvferry.engine.model.FolderTokenizer;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.RunnerChoice;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// Hugging Face's tokenizers over model folders.
class HuggingFaceTokenizersTest {
    private static final List<String> TEXTS =
            List.of(
                    "",
                    "It was the best of times,\n\n  it was the worst of times.",
                    "Gr\u00fc\u00dfe aus K\u00f6ln, \u65e5\u672c\u8a9e and \ud83d\ude00!",
                    "tabs\tand   spaces 12345 don't");

    @TempDir static Path shared;

    private static Path model = Path.of("");

    @TempDir Path folder;

    @BeforeAll
    static void makeModel() {
        model = shared.resolve("model");
        MakeModelCommand.makeDefault(model);
    }

    @Test
    void agreeWithTheBuiltInOneOnTheTinyModel() {
        var loaded = new HuggingFaceTokenizers().load(model).orElseThrow();
        var builtIn = FolderTokenizer.builtIn(model);
        assertThat(loaded.size()).isEqualTo(builtIn.size());
        for (var text : TEXTS) {
            int[] ids = loaded.tokenizer().encode(text);
            assertThat(ids).as(text).isEqualTo(builtIn.encode(text));
            assertThat(loaded.tokenizer().decode(ids)).isEqualTo(builtIn.decode(ids));
        }
        var chat = List.of(new ChatMessage("user", "Call me Ishmael."));
        assertThat(loaded.tokenizer().encodeChat(chat)).isEqualTo(builtIn.encodeChat(chat));
    }

    /// Small tokenizers of the kinds that models have, with what Hugging Face's own library makes
    /// of difficult texts: `interop/tokenizers/golden.py`.
    @ParameterizedTest
    @ValueSource(strings = {"qwen", "llama3", "sentencepiece", "unigram"})
    void agreeWithHuggingFacesLibrary(String kind) throws IOException {
        Files.write(folder.resolve("tokenizer.json"), resource(kind, "tokenizer.json"));
        Files.writeString(
                folder.resolve("tokenizer_config.json"),
                "{\"chat_template\": \"{{ messages[0].content }}\"}");
        var golden = Json.parseObject(resource(kind, "golden.json"));
        var loaded = FolderTokenizer.load(folder);
        assertThat(loaded.size()).isEqualTo(golden.path("size").asInt());
        for (var each : golden.path("cases")) {
            var text = each.path("text").asString();
            int[] ids = loaded.encode(text);
            assertThat(ids).as(text).isEqualTo(ids(each.path("ids")));
            assertThat(loaded.encodeChat(List.of(new ChatMessage("user", text))))
                    .as("a chat brings its special tokens: %s", text)
                    .isEqualTo(ids(each.path("bare")));
            assertThat(loaded.decode(ids)).as(text).isEqualTo(each.path("decoded").asString());
            assertThat(streamed(loaded, ids)).isEqualTo(each.path("decoded").asString());
        }
    }

    private static byte[] resource(String kind, String name) throws IOException {
        var path = "/tokenizers/" + kind + "/" + name;
        try (var in = HuggingFaceTokenizersTest.class.getResourceAsStream(path)) {
            return Objects.requireNonNull(in, path).readAllBytes();
        }
    }

    private static int[] ids(JsonNode array) {
        return array.valueStream().mapToInt(JsonNode::asInt).toArray();
    }

    private static String streamed(Tokenizer tokenizer, int[] ids) {
        var stream = tokenizer.streamDecoder();
        var whole = new StringBuilder();
        for (int id : ids) {
            whole.append(stream.append(id));
        }
        return whole.append(stream.flush()).toString();
    }

    @Test
    void streamTheTextOfTheWhole() {
        var tokenizer = new HuggingFaceTokenizers().load(model).orElseThrow().tokenizer();
        for (var text : TEXTS) {
            int[] ids = tokenizer.encode(text);
            var stream = tokenizer.streamDecoder();
            var whole = new StringBuilder();
            for (int id : ids) {
                whole.append(stream.append(id));
            }
            assertThat(whole.append(stream.flush()).toString()).isEqualTo(tokenizer.decode(ids));
        }
        var cut = tokenizer.streamDecoder();
        int[] emoji = tokenizer.encode("\ud83d\ude00");
        for (int i = 0; i < emoji.length - 1; i++) {
            assertThat(cut.append(emoji[i])).isEmpty();
        }
        assertThat(cut.append(emoji[emoji.length - 1]) + cut.flush()).endsWith("\ud83d\ude00");
    }

    /// A tokenizer that byte-level BPE cannot be: words, with the model's own template.
    @Test
    void readWhatTheBuiltInOneCannot() throws IOException {
        Files.writeString(
                folder.resolve("tokenizer.json"),
                """
                {"version": "1.0", "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false,
                  "rstrip": false, "normalized": false, "special": true}],
                 "pre_tokenizer": {"type": "Whitespace"},
                 "model": {"type": "WordLevel", "vocab": {"hello": 0, "world": 1, "[UNK]": 2}, "unk_token": "[UNK]"}}
                """);
        Files.writeString(
                folder.resolve("tokenizer_config.json"),
                "{\"chat_template\": \"{{ messages[0].content }}<end>\"}");
        var loaded = FolderTokenizer.load(folder);
        assertThat(loaded.size()).isEqualTo(4);
        assertThat(loaded.encode("hello there world")).containsExactly(0, 2, 1);
        assertThat(loaded.encodeChat(List.of(new ChatMessage("user", "world hello"))))
                .containsExactly(1, 0, 3);
        assertThat(loaded.decode(new int[] {0, 3, 1})).isEqualTo("hello world");
    }

    /// A file that Hugging Face's tokenizers refuse, and the built-in one takes.
    @Test
    void keepTheModelsTemplateWhereTheBuiltInOneReadsTheFile() throws IOException {
        var file = Files.readString(model.resolve("tokenizer.json"));
        assertThat(file).contains("\"version\"");
        Files.writeString(
                folder.resolve("tokenizer.json"),
                file.replaceFirst("\"version\"\\s*:\\s*\"1.0\"", "\"version\": \"99.0\""));
        var builtIn = FolderTokenizer.builtIn(folder);
        assertThat(new HuggingFaceTokenizers().load(folder)).isEmpty();
        Files.writeString(
                folder.resolve("tokenizer_config.json"),
                "{\"chat_template\": \"Q: {{ messages[0].content }}\"}");
        var loaded = new HuggingFaceTokenizers().load(folder).orElseThrow();
        assertThat(loaded.size()).isEqualTo(builtIn.size());
        var text = "Call me Ishmael.";
        int[] chat = loaded.tokenizer().encodeChat(List.of(new ChatMessage("user", text)));
        assertThat(loaded.tokenizer().decode(chat)).isEqualTo("Q: " + text);
        assertThat(chat).isEqualTo(BpeTokenizer.load(folder).encode("Q: " + text, false));
        assertThat(loaded.tokenizer().encode(text)).isEqualTo(builtIn.encode(text));
    }

    @Test
    void chooseTheRunnerThatTakesTheModel() {
        var plugins = AssembledEngine.catalog(Optional.empty());
        var chosen = RunnerChoice.of(plugins, EngineSettings.of(RunnerChoice.AUTO, model));
        assertThat(chosen.name()).isIn("jlama", "llama");
        var missing =
                catchThrowableOfType(
                        KvFerryException.class,
                        () ->
                                RunnerChoice.of(
                                        plugins,
                                        EngineSettings.of(RunnerChoice.AUTO, Path.of(""))));
        assertThat(missing.code()).isEqualTo(ErrorCode.BAD_CONFIG);
        assertThat(missing).hasMessageContaining("make-model");
        var none =
                catchThrowableOfType(
                        KvFerryException.class,
                        () ->
                                RunnerChoice.of(
                                        plugins, EngineSettings.of(RunnerChoice.AUTO, folder)));
        assertThat(none).hasMessageContaining("jlama").hasMessageContaining("llama does not");
    }

    @Test
    void chooseTheReferenceRunnerForAModelWithRopeScaling() throws IOException {
        try (var files = Files.list(model)) {
            for (var file : files.toList()) {
                Files.copy(file, folder.resolve(String.valueOf(file.getFileName())));
            }
        }
        var config = Json.parseObject(Files.readAllBytes(folder.resolve("config.json")));
        config.putObject("rope_scaling")
                .put("rope_type", "llama3")
                .put("factor", 8.0)
                .put("low_freq_factor", 1.0)
                .put("high_freq_factor", 4.0)
                .put("original_max_position_embeddings", 256);
        Files.writeString(folder.resolve("config.json"), Json.text(config));
        var plugins = AssembledEngine.catalog(Optional.empty());
        var settings = EngineSettings.of(RunnerChoice.AUTO, folder);
        assertThat(RunnerChoice.of(plugins, settings).name()).isEqualTo("llama");
    }
}
