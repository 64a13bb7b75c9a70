// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.tokenizer;

import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer;

import io.kvferry.engine.model.FolderTokenizer;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.model.TokenizerProvider;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// Hugging Face's own tokenizers, through DJL, for every `tokenizer.json`, with the model's own
/// chat template. Where DJL's native library does not load, byte-level BPE does what it can, and
/// says so in the log.
///
/// Threading: any thread.
public final class HuggingFaceTokenizers implements TokenizerProvider {
    private static final Logger LOG = LoggerFactory.getLogger(HuggingFaceTokenizers.class);

    @Override
    public Optional<Loaded> load(Path modelFolder) {
        var file = modelFolder.resolve("tokenizer.json");
        if (!Files.isRegularFile(file)) {
            return Optional.empty(); // the built-in tokenizer says what is missing
        }
        // DJL must neither download nor call home.
        System.setProperty("ai.djl.offline", "true");
        System.setProperty("OPT_OUT_TRACKING", "true");
        var template = JinjaChatTemplate.read(modelFolder);
        try {
            var tokenizer =
                    HuggingFaceTokenizer.builder()
                            .optTokenizerPath(file)
                            .optTruncation(false)
                            .optPadding(false)
                            .build();
            var builtIn = template.isPresent() ? null : chatOnly(modelFolder);
            return Optional.of(new Loaded(new Djl(tokenizer, template, builtIn), size(file)));
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + file, e);
        } catch (LinkageError | RuntimeException e) {
            LOG.warn(
                    "{} is read by the built-in byte-level tokenizer, since Hugging Face's does not take it: {}",
                    file,
                    e.toString());
            return template.map(own -> builtIn(modelFolder, own));
        }
    }

    /// The built-in tokenizer, which knows no templates, with the model's own.
    private static Loaded builtIn(Path folder, JinjaChatTemplate template) {
        var tokenizer = FolderTokenizer.builtIn(folder);
        return new Loaded(
                new Templated(tokenizer, BpeTokenizer.load(folder), template), tokenizer.size());
    }

    /// For folders without a template: the built-in forms, where the built-in tokenizer reads the
    /// folder.
    private static @Nullable FolderTokenizer chatOnly(Path folder) {
        try {
            return FolderTokenizer.builtIn(folder);
        } catch (KvFerryException e) {
            LOG.warn("{} has no chat template: /v1/chat/completions is refused", folder);
            return null;
        }
    }

    /// The highest id of vocabulary and added tokens, plus one.
    private static int size(Path file) throws IOException {
        JsonNode json;
        try {
            json = Json.readObject(Files.readAllBytes(file));
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, file + " is " + e.getMessage(), e);
        }
        var vocabulary = json.path("model").path("vocab");
        int highest = vocabulary.isArray() ? vocabulary.size() - 1 : -1;
        for (var id : vocabulary.isObject() ? vocabulary : Json.object()) {
            highest = Math.max(highest, id.intValue());
        }
        for (var added : json.path("added_tokens")) {
            highest = Math.max(highest, added.path("id").intValue());
        }
        return highest + 1;
    }

    /// @param builtIn renders chats of a folder without a template
    private record Djl(
            HuggingFaceTokenizer tokenizer,
            Optional<JinjaChatTemplate> template,
            @Nullable FolderTokenizer builtIn)
            implements Tokenizer {
        @Override
        public int[] encode(String text) {
            return encode(text, true);
        }

        @Override
        public int[] encode(String text, boolean special) {
            return Arrays.stream(tokenizer.encode(text, special, false).getIds())
                    .mapToInt(Math::toIntExact)
                    .toArray();
        }

        @Override
        public String decode(int[] tokens) {
            return tokenizer.decode(Arrays.stream(tokens).asLongStream().toArray(), true);
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages) {
            return encodeChat(messages, ChatOptions.DEFAULT);
        }

        /// A template writes its special tokens itself.
        @Override
        public int[] encodeChat(List<ChatMessage> messages, ChatOptions options) {
            if (template.isPresent()) {
                return encode(template.get().render(messages, options), options.addSpecialTokens());
            }
            if (builtIn == null) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED, "the model has no chat template; use completions");
            }
            return builtIn.encodeChat(messages, options);
        }

        @Override
        public StreamDecoder streamDecoder() {
            return new Stream(this);
        }
    }

    /// The built-in tokenizer with the model's chat template.
    ///
    /// @param bpe the same tokenizer, for texts that bring their special tokens
    private record Templated(
            FolderTokenizer tokenizer, BpeTokenizer bpe, JinjaChatTemplate template)
            implements Tokenizer {
        @Override
        public int[] encode(String text) {
            return tokenizer.encode(text);
        }

        @Override
        public int[] encode(String text, boolean addSpecialTokens) {
            return bpe.encode(text, addSpecialTokens);
        }

        @Override
        public String decode(int[] tokens) {
            return tokenizer.decode(tokens);
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages) {
            return encodeChat(messages, ChatOptions.DEFAULT);
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages, ChatOptions options) {
            return bpe.encode(template.render(messages, options), options.addSpecialTokens());
        }

        @Override
        public StreamDecoder streamDecoder() {
            return tokenizer.streamDecoder();
        }
    }

    /// Decodes a window of the last tokens with and without the newest one: some tokenizers write a
    /// token differently at the beginning of a text. A text that ends in U+FFFD waits for the rest
    /// of its character.
    private static final class Stream implements Tokenizer.StreamDecoder {
        private final Djl tokenizer;
        private final List<Integer> window = new ArrayList<>();

        /// How many of them are in the text that was returned.
        private int written;

        Stream(Djl tokenizer) {
            this.tokenizer = tokenizer;
        }

        @Override
        public String append(int token) {
            window.add(token);
            var before = text(written);
            var now = text(window.size());
            if (now.length() <= before.length() || now.endsWith("\ufffd")) {
                return "";
            }
            window.subList(0, written).clear();
            written = window.size();
            return now.substring(before.length());
        }

        @Override
        public String flush() {
            var rest = text(window.size()).substring(text(written).length());
            written = window.size();
            return rest;
        }

        private String text(int count) {
            return tokenizer.decode(
                    window.subList(0, count).stream().mapToInt(Integer::intValue).toArray());
        }
    }
}
