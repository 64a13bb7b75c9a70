// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.model.Tokenizer;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Collectors;

/// One token per UTF-8 byte.
final class ByteTokenizer implements Tokenizer {
    @Override
    public int[] encode(String text) {
        var bytes = text.getBytes(StandardCharsets.UTF_8);
        var ids = new int[bytes.length];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = bytes[i] & 0xff;
        }
        return ids;
    }

    @Override
    public String decode(int[] tokens) {
        var bytes = new ByteArrayOutputStream();
        for (int token : tokens) {
            bytes.write(token);
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }

    @Override
    public int[] encodeChat(List<ChatMessage> messages) {
        return encode(
                messages.stream()
                        .map(m -> m.role() + ": " + m.content())
                        .collect(Collectors.joining("\n")));
    }

    /// Appends the options that differ from the defaults to the messages.
    @Override
    public int[] encodeChat(List<ChatMessage> messages, ChatOptions options) {
        var prompt = decode(encodeChat(messages));
        return encode(options.equals(ChatOptions.DEFAULT) ? prompt : prompt + '\n' + options);
    }

    /// Without special tokens a prompt begins with `-`.
    @Override
    public int[] encode(String text, boolean addSpecialTokens) {
        return encode(addSpecialTokens ? text : "-" + text);
    }

    @Override
    public StreamDecoder streamDecoder() {
        var decoder =
                StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPLACE);
        var in = ByteBuffer.allocate(8);
        return new StreamDecoder() {
            @Override
            public String append(int token) {
                in.put((byte) token);
                return decode(false);
            }

            @Override
            public String flush() {
                return decode(true);
            }

            private String decode(boolean end) {
                var out = CharBuffer.allocate(8);
                in.flip();
                decoder.decode(in, out, end);
                in.compact();
                return out.flip().toString();
            }
        };
    }
}
