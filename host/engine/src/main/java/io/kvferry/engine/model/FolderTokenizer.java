// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;
import io.kvferry.toolkit.tokenizer.ChatTemplate;
import io.kvferry.toolkit.tokenizer.TextStream;

import java.nio.file.Path;
import java.util.List;

/// The tokenizer in a Hugging Face model folder (byte-level BPE), for runners that read such
/// folders.
///
/// Threading: immutable; any thread.
public final class FolderTokenizer implements Tokenizer {
    private final BpeTokenizer tokenizer;
    private final ChatTemplate template;

    private FolderTokenizer(BpeTokenizer tokenizer) {
        this.tokenizer = tokenizer;
        this.template = ChatTemplate.of(tokenizer);
    }

    /// Reads `tokenizer.json`.
    ///
    /// @throws KvFerryException as [BpeTokenizer#load] does
    public static FolderTokenizer load(Path modelFolder) {
        return new FolderTokenizer(BpeTokenizer.load(modelFolder));
    }

    /// Highest id plus one.
    public int size() {
        return tokenizer.size();
    }

    @Override
    public int[] encode(String text) {
        return tokenizer.encode(text, true);
    }

    @Override
    public String decode(int[] tokens) {
        return tokenizer.decode(tokens);
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
        var stream = new TextStream(tokenizer);
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
