// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.model.Tokenizer.StreamDecoder;

import java.util.List;

/// Text of a generation as the client may see it: up to the first stop string, and with it or
/// without. While tokens still come, as many characters are kept back as could be the beginning of
/// one.
///
/// Threading: one thread.
final class StopText {
    private final StreamDecoder decoder;
    private final List<String> stops;
    private final boolean include;
    private final int minTokens;
    private final int keepBack;
    private final StringBuilder held = new StringBuilder();
    private int tokens;
    private boolean stopped;

    /// @param include whether the stop string stays in the text
    /// @param minTokens the engine does not stop before, so what looks like a stop string is none
    StopText(StreamDecoder decoder, List<String> stops, boolean include, int minTokens) {
        this.decoder = decoder;
        this.stops = stops;
        this.include = include;
        this.minTokens = minTokens;
        this.keepBack = stops.stream().mapToInt(String::length).max().orElse(1) - 1;
    }

    /// The text that can go out after one more token, often empty.
    String append(int token) {
        var piece = decoder.append(token);
        if (++tokens < minTokens) {
            return piece;
        }
        held.append(piece);
        return take(keepBack);
    }

    /// The rest.
    String end() {
        held.append(decoder.flush());
        return take(0);
    }

    private String take(int keep) {
        if (stopped) {
            return "";
        }
        int end = Math.max(0, held.length() - keep);
        int first = Integer.MAX_VALUE;
        for (var stop : stops) {
            int at = held.indexOf(stop);
            if (at >= 0 && at < first) {
                first = at;
                stopped = true;
                end = include ? at + stop.length() : at;
            }
        }
        if (!stopped
                && end > 0
                && end < held.length()
                && Character.isHighSurrogate(held.charAt(end - 1))) {
            end--;
        }
        var text = held.substring(0, end);
        held.delete(0, end);
        return text;
    }
}
