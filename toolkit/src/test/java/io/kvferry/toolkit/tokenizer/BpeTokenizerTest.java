// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.stream.StreamSupport;

/// The files under `tokenizers/` were trained on a few lines and encoded with Hugging Face's
/// `tokenizers` 0.23: one file per family of pre-tokenizers, with its cases beside it.
class BpeTokenizerTest {
    @TempDir Path folder;

    private static JsonNode resource(String name) throws IOException {
        try (InputStream in = BpeTokenizerTest.class.getResourceAsStream("/tokenizers/" + name)) {
            return new JsonMapper().readTree(in);
        }
    }

    private BpeTokenizer load(JsonNode json) throws IOException {
        Files.writeString(folder.resolve(BpeTokenizer.FILE_NAME), json.toString());
        return BpeTokenizer.load(folder);
    }

    private static int[] ints(JsonNode array) {
        return StreamSupport.stream(array.spliterator(), false)
                .mapToInt(JsonNode::intValue)
                .toArray();
    }

    @ParameterizedTest
    @ValueSource(strings = {"gpt2", "smollm", "llama3", "qwen"})
    void encodesAndDecodesAsHuggingFaceDoes(String family) throws IOException {
        BpeTokenizer tokenizer = load(resource(family + ".json"));
        for (JsonNode example : resource(family + ".cases.json")) {
            String text = example.path("text").asString();
            int[] ids = ints(example.path("ids"));
            assertThat(tokenizer.encode(text, true)).as("ids of '%s'", text).containsExactly(ids);
            assertThat(tokenizer.encode(text, false))
                    .as("bare '%s'", text)
                    .containsExactly(ints(example.path("bare")));
            assertThat(tokenizer.decode(ids))
                    .as("text of '%s'", text)
                    .isEqualTo(example.path("decoded").asString());
        }
    }

    @Test
    void streamsWholeCharactersOnly() throws IOException {
        BpeTokenizer tokenizer = load(resource("gpt2.json"));
        int[] ids = tokenizer.encode("\ud83d\ude00\u4f60", false);
        var stream = new TextStream(tokenizer);
        assertThat(ids).hasSize(7);
        assertThat(stream.push(ids[0]) + stream.push(ids[1]) + stream.push(ids[2])).isEmpty();
        assertThat(stream.push(ids[3])).isEqualTo("\ud83d\ude00");
        assertThat(stream.push(ids[4])).isEmpty();
        assertThat(stream.end()).isEqualTo("\ufffd");
        assertThat(stream.end()).isEmpty();
    }

    @Test
    void replacesBrokenBytesAndGoesOn() throws IOException {
        BpeTokenizer tokenizer = load(resource("gpt2.json"));
        int lead = tokenizer.idOf(String.valueOf(ByteAlphabet.charOf(0xe4))).orElseThrow();
        int letter = tokenizer.idOf("x").orElseThrow();
        assertThat(tokenizer.decode(lead, letter, lead)).isEqualTo("\ufffdx\ufffd");
        assertThat(tokenizer.decode(-1, letter, 1_000_000)).isEqualTo("x");
    }

    @Test
    void encodesAVeryLongWordInReasonableTime() throws IOException {
        BpeTokenizer tokenizer = load(resource("gpt2.json"));
        Assertions.assertTimeout(
                Duration.ofSeconds(20),
                () -> assertThat(tokenizer.encode("the".repeat(100_000), false)).isNotEmpty());
    }

    @Test
    void replacesOrDropsBytesThatTheVocabularyLacks() throws IOException {
        var json = (ObjectNode) resource("gpt2.json");
        var model = (ObjectNode) json.get("model");
        ((ObjectNode) model.get("vocab")).remove(String.valueOf(ByteAlphabet.charOf(4)));
        int a = load(json).idOf("a").orElseThrow();
        assertThat(load(json).encode("a\u0004\u0004a", false)).containsExactly(a, a);
        model.put("unk_token", "<|endoftext|>");
        int unknown = load(json).idOf("<|endoftext|>").orElseThrow();
        assertThat(load(json).encode("a\u0004\u0004a", false))
                .containsExactly(a, unknown, unknown, a);
        model.put("fuse_unk", true);
        assertThat(load(json).encode("a\u0004\u0004a", false)).containsExactly(a, unknown, a);
    }

    @Test
    void picksTheTemplateByTurnTokens() throws IOException {
        var turns = List.of(new ChatTemplate.Message("user", "hi"));
        assertThat(ChatTemplate.of(load(resource("gpt2.json"))).render(turns))
                .isEqualTo("user: hi\nassistant: ");
        assertThat(ChatTemplate.of(load(resource("smollm.json"))).render(turns))
                .isEqualTo("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
        assertThat(ChatTemplate.of(load(resource("llama3.json"))).render(turns))
                .isEqualTo(
                        "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
                                + "<|start_header_id|>assistant<|end_header_id|>\n\n");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "/model|{\"type\":\"Unigram\"}|model type Unigram",
                "/pre_tokenizer|{\"type\":\"Metaspace\"}|pre-tokenizer Metaspace",
                "/pre_tokenizer|{\"type\":\"Sequence\",\"pretokenizers\":[]}|without ByteLevel",
                "/normalizer|{\"type\":\"Lowercase\"}|normalizer Lowercase",
                "/post_processor|{\"type\":\"BertProcessing\"}|post-processor",
            })
    void namesWhatItDoesNotSupport(String pointer, String replacement, String hint)
            throws IOException {
        var json = (ObjectNode) resource("gpt2.json");
        json.set(pointer.substring(1), new JsonMapper().readTree(replacement));
        assertThatThrownBy(() -> load(json))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNSUPPORTED))
                .hasMessageContaining(hint);
    }

    @Test
    void namesAMissingOrBrokenFile() throws IOException {
        assertThatThrownBy(() -> BpeTokenizer.load(folder))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.NOT_FOUND))
                .hasMessageContaining("tokenizer.json");
        Files.writeString(folder.resolve("tokenizer.json"), "{\"model\":");
        assertThatThrownBy(() -> BpeTokenizer.load(folder))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CORRUPT));
        assertThatThrownBy(() ->
                        load(
                                new JsonMapper()
                                        .readTree("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}")))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining("no token for '!'");
    }
}
