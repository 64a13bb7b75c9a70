// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.model.Tokenizer.StreamDecoder;

import java.util.List;

/// Text of a generation as the client may see it: up to, and without, the first stop string. While
/// tokens still come, as many characters are kept back as could be the beginning of one.
///
/// Threading: one thread.
final class StopText {
    private final StreamDecoder decoder;
    private final List<String> stops;
    private final int keepBack;
    private final StringBuilder held = new StringBuilder();
    private boolean stopped;

    StopText(StreamDecoder decoder, List<String> stops) {
        this.decoder = decoder;
        this.stops = stops;
        this.keepBack = stops.stream().mapToInt(String::length).max().orElse(1) - 1;
    }

    /// The text that can go out after one more token, often empty.
    String append(int token) {
        held.append(decoder.append(token));
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
        int cut = stops.stream().mapToInt(held::indexOf).filter(at -> at >= 0).min().orElse(-1);
        stopped = cut >= 0;
        int end = stopped ? cut : Math.max(0, held.length() - keep);
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
