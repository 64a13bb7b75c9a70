// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import java.util.List;

/// Text to tokens and back.
///
/// Threading: any thread; a [StreamDecoder] belongs to one.
public interface Tokenizer {
    /// Token ids of a prompt, with the model's begin-of-sequence token where it has one.
    int[] encode(String text);

    /// Text of some generated tokens; special tokens are left out.
    String decode(int[] tokens);

    /// The prompt of a chat, in the model's template.
    int[] encodeChat(List<ChatMessage> messages);

    /// Text piece by piece, for streaming and for stop strings.
    StreamDecoder streamDecoder();

    /// One turn of a chat; roles are OpenAI's (`system`, `user`, `assistant`).
    ///
    /// @param name of the participant, for templates that write it; empty for none
    record ChatMessage(String role, String content, String name) {
        public ChatMessage(String role, String content) {
            this(role, content, "");
        }
    }

    /// Decodes tokens one by one; keeps back bytes that are not a whole character yet.
    interface StreamDecoder {
        /// The text that became complete with this token, often empty.
        String append(int token);

        /// What was kept back, as replacement characters.
        String flush();
    }
}
