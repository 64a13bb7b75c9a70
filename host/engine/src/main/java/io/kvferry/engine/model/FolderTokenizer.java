// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;
import io.kvferry.toolkit.tokenizer.ChatTemplate;
import io.kvferry.toolkit.tokenizer.TextStream;

import java.nio.file.Path;
import java.util.List;
import java.util.ServiceLoader;

/// The tokenizer in a Hugging Face model folder, for runners that read such folders: that of a
/// [TokenizerProvider] where one is there, else byte-level BPE.
///
/// Threading: immutable; any thread.
public final class FolderTokenizer implements Tokenizer {
    private final Tokenizer tokenizer;
    private final int size;

    private FolderTokenizer(Tokenizer tokenizer, int size) {
        this.tokenizer = tokenizer;
        this.size = size;
    }

    /// Reads `tokenizer.json`.
    ///
    /// @throws KvFerryException as [BpeTokenizer#load] and [TokenizerProvider#load] do
    public static FolderTokenizer load(Path modelFolder) {
        var providers =
                ServiceLoader.load(TokenizerProvider.class, FolderTokenizer.class.getClassLoader());
        for (var provider : providers) {
            var loaded = provider.load(modelFolder);
            if (loaded.isPresent()) {
                return new FolderTokenizer(loaded.get().tokenizer(), loaded.get().size());
            }
        }
        return builtIn(modelFolder);
    }

    /// The same without providers.
    public static FolderTokenizer builtIn(Path modelFolder) {
        var bpe = BpeTokenizer.load(modelFolder);
        return new FolderTokenizer(new BuiltIn(bpe, ChatTemplate.of(bpe)), bpe.size());
    }

    /// Highest id plus one.
    public int size() {
        return size;
    }

    @Override
    public int[] encode(String text) {
        return tokenizer.encode(text);
    }

    @Override
    public int[] encode(String text, boolean addSpecialTokens) {
        return tokenizer.encode(text, addSpecialTokens);
    }

    @Override
    public String decode(int[] tokens) {
        return tokenizer.decode(tokens);
    }

    @Override
    public int[] encodeChat(List<ChatMessage> messages) {
        return tokenizer.encodeChat(messages);
    }

    @Override
    public int[] encodeChat(List<ChatMessage> messages, ChatOptions options) {
        return tokenizer.encodeChat(messages, options);
    }

    @Override
    public StreamDecoder streamDecoder() {
        return tokenizer.streamDecoder();
    }

    /// Byte-level BPE.
    private record BuiltIn(BpeTokenizer bpe, ChatTemplate template) implements Tokenizer {
        @Override
        public int[] encode(String text) {
            return encode(text, true);
        }

        @Override
        public int[] encode(String text, boolean addSpecialTokens) {
            return bpe.encode(text, addSpecialTokens);
        }

        @Override
        public String decode(int[] tokens) {
            return bpe.decode(tokens);
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages) {
            return encode(
                    template.render(
                            messages.stream()
                                    .map(m -> new ChatTemplate.Message(m.role(), m.content()))
                                    .toList()));
        }

        @Override
        public StreamDecoder streamDecoder() {
            var stream = new TextStream(bpe);
            return new StreamDecoder() {
                @Override
                public String append(int token) {
                    return stream.push(token);
                }

                @Override
                public String flush() {
                    return stream.end();
                }
            };
        }
    }
}
