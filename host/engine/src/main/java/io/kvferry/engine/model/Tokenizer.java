// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.List;
import java.util.Map;

/// Text to tokens and back.
///
/// Threading: any thread; a [StreamDecoder] belongs to one.
public interface Tokenizer {
    /// Token ids of a prompt, with the model's begin-of-sequence token where it has one.
    int[] encode(String text);

    /// The same with or without the special tokens that the tokenizer adds.
    ///
    /// @throws KvFerryException UNSUPPORTED where that cannot be chosen
    default int[] encode(String text, boolean addSpecialTokens) {
        if (addSpecialTokens) {
            return encode(text);
        }
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED, "add_special_tokens: the tokenizer always adds its own");
    }

    /// Text of some generated tokens; special tokens are left out.
    String decode(int[] tokens);

    /// The prompt of a chat, in the model's template.
    int[] encodeChat(List<ChatMessage> messages);

    /// The prompt of a chat, rendered as the client wants it.
    ///
    /// @throws KvFerryException UNSUPPORTED for options other than [ChatOptions#DEFAULT] where the
    ///   template takes none; INVALID_REQUEST where it refuses these messages or options
    default int[] encodeChat(List<ChatMessage> messages, ChatOptions options) {
        if (options.equals(ChatOptions.DEFAULT)) {
            return encodeChat(messages);
        }
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED,
                "add_generation_prompt, continue_final_message, add_special_tokens, documents and chat_template_kwargs need a model with a chat template of its own");
    }

    /// Text piece by piece, for streaming and for stop strings.
    StreamDecoder streamDecoder();

    /// How a chat becomes a prompt; the names are vLLM's.
    ///
    /// @param addGenerationPrompt whether the prompt ends with the opening of the assistant's
    ///   answer
    /// @param continueFinalMessage whether it ends within the last message, which the model
    ///   continues
    /// @param addSpecialTokens whether the tokenizer adds its special tokens to those that the
    ///   template writes
    /// @param variables what else the template sees by these names: String, Boolean, Long, Double,
    ///   List, Map
    record ChatOptions(
            boolean addGenerationPrompt,
            boolean continueFinalMessage,
            boolean addSpecialTokens,
            Map<String, Object> variables) {
        /// A new answer, and nothing besides.
        public static final ChatOptions DEFAULT = new ChatOptions(true, false, false, Map.of());

        public ChatOptions {
            variables = Map.copyOf(variables);
            if (addGenerationPrompt && continueFinalMessage) {
                throw new IllegalArgumentException(
                        "a prompt cannot both begin an answer and continue the last message");
            }
        }
    }

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
