// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import java.util.List;

/// What one request through the router came to.
///
/// @param tokens the token ids that were streamed
/// @param error empty when the stream ended well, else what was wrong
/// @param ttftNanos from sending to the first token, 0 without one
/// @param gapNanos times between tokens
@SuppressWarnings("ArrayRecordComponent") // made once, never changed
record Sample(Turn turn, int[] tokens, String error, long ttftNanos, List<Long> gapNanos) {
    Sample {
        gapNanos = List.copyOf(gapNanos);
    }

    /// Tokens that are as expected, position by position.
    int identical() {
        int same = 0;
        for (int i = 0; i < Math.min(tokens.length, turn.expected().length); i++) {
            same += tokens[i] == turn.expected()[i] ? 1 : 0;
        }
        return same;
    }

    boolean matches() {
        return error.isEmpty()
                && identical() == turn.expected().length
                && tokens.length == turn.expected().length;
    }
}
