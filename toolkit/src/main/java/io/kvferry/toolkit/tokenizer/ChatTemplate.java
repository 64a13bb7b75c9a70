// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import java.util.List;

/// How a conversation becomes one prompt.
///
/// A model folder may carry a Jinja template; kvferry does not run Jinja. It recognises the two
/// families by their turn tokens and writes their published form, and gives every other model
/// [#PLAIN].
public enum ChatTemplate {
    /// `<|im_start|>role\ncontent<|im_end|>\n`: SmolLM, Qwen and others.
    CHATML {
        @Override
        void turn(StringBuilder out, String role, String content) {
            out.append("<|im_start|>")
                    .append(role)
                    .append('\n')
                    .append(content)
                    .append("<|im_end|>\n");
        }

        @Override
        void open(StringBuilder out) {
            out.append("<|im_start|>assistant\n");
        }
    },
    /// `<|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>`: Llama 3.
    LLAMA3 {
        @Override
        void turn(StringBuilder out, String role, String content) {
            header(out, role).append(content.strip()).append("<|eot_id|>");
        }

        @Override
        void open(StringBuilder out) {
            header(out, "assistant");
        }

        private StringBuilder header(StringBuilder out, String role) {
            return out.append("<|start_header_id|>").append(role).append("<|end_header_id|>\n\n");
        }
    },
    /// `role: content\n`, for models that were given no turn tokens.
    PLAIN {
        @Override
        void turn(StringBuilder out, String role, String content) {
            out.append(role).append(": ").append(content).append('\n');
        }

        @Override
        void open(StringBuilder out) {
            out.append("assistant: ");
        }
    };

    /// One turn of a conversation.
    public record Message(String role, String content) {}

    abstract void turn(StringBuilder out, String role, String content);

    abstract void open(StringBuilder out);

    /// The template whose turn tokens the tokenizer has.
    public static ChatTemplate of(BpeTokenizer tokenizer) {
        if (tokenizer.idOf("<|im_start|>").isPresent()) {
            return CHATML;
        }
        return tokenizer.idOf("<|start_header_id|>").isPresent() ? LLAMA3 : PLAIN;
    }

    /// The prompt: all turns, then the opening of the assistant's answer. Turn k of a conversation
    /// is a prefix of turn k + 1, which is what makes prefix caches hit. BOS is left to
    /// [BpeTokenizer#encode].
    public String render(List<Message> messages) {
        var out = new StringBuilder();
        messages.forEach(m -> turn(out, m.role(), m.content()));
        open(out);
        return out.toString();
    }
}
