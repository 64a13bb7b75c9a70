// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.engine.model.Tokenizer.ChatMessage;

import java.util.List;

/// One request of the demo: a conversation up to some turn of the user, and the tokens that a run
/// without disaggregation answered.
///
/// @param conversation number of the conversation
/// @param index number of the turn within it
@SuppressWarnings("ArrayRecordComponent") // made once, never changed
record Turn(int conversation, int index, List<ChatMessage> messages, int[] expected) {
    Turn {
        messages = List.copyOf(messages);
    }
}
