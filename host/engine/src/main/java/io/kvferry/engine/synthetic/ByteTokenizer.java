// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.synthetic;

import io.kvferry.engine.model.Tokenizer;

import java.nio.charset.StandardCharsets;
import java.util.List;

/// Prompt bytes are tokens 1 to 256 (byte + 1); a generated token reads as `<id>` unless it is
/// printable ASCII.
final class ByteTokenizer implements Tokenizer {
    static final ByteTokenizer INSTANCE = new ByteTokenizer();

    private ByteTokenizer() {}

    @Override
    public int[] encode(String text) {
        var bytes = text.getBytes(StandardCharsets.UTF_8);
        var tokens = new int[bytes.length];
        for (int i = 0; i < bytes.length; i++) {
            tokens[i] = (bytes[i] & 0xff) + 1;
        }
        return tokens;
    }

    /// There are no special tokens.
    @Override
    public int[] encode(String text, boolean addSpecialTokens) {
        return encode(text);
    }

    @Override
    public String decode(int[] tokens) {
        var text = new StringBuilder();
        for (int token : tokens) {
            text.append(piece(token));
        }
        return text.toString();
    }

    private static String piece(int token) {
        int code = token - 1;
        return (code >= ' ' && code < 127) || code == '\n'
                ? Character.toString(code)
                : "<" + token + ">";
    }

    @Override
    public int[] encodeChat(List<ChatMessage> messages) {
        var text = new StringBuilder();
        for (var message : messages) {
            text.append(message.role()).append(": ").append(message.content()).append('\n');
        }
        return encode(text.append("assistant: ").toString());
    }

    @Override
    public StreamDecoder streamDecoder() {
        return new StreamDecoder() {
            @Override
            public String append(int token) {
                return piece(token);
            }

            @Override
            public String flush() {
                return "";
            }
        };
    }
}
