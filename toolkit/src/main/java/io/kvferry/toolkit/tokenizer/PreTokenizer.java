// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// Cuts text into the pieces inside which merges may happen: each pattern's matches, and what lies
/// between them, become pieces of their own ("isolated" in Hugging Face's words), pattern after
/// pattern.
record PreTokenizer(List<Pattern> patterns, boolean prefixSpace) {
    /// What `ByteLevel` with `use_regex` splits by; the pattern of GPT-2.
    static final Pattern GPT2 =
            pattern(
                    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");

    static final Pattern SINGLE_DIGITS = pattern("\\p{N}");
    static final Pattern DIGIT_RUNS = pattern("\\p{N}+");

    /// Hugging Face's engine reads `\s` as Unicode white space, hence the flag.
    static Pattern pattern(String regex) {
        return Pattern.compile(regex, Pattern.UNICODE_CHARACTER_CLASS);
    }

    List<String> split(String text) {
        List<String> pieces = List.of(prefixSpace && !text.startsWith(" ") ? " " + text : text);
        for (Pattern pattern : patterns) {
            var finer = new ArrayList<String>();
            for (String piece : pieces) {
                isolate(pattern, piece, finer);
            }
            pieces = finer;
        }
        return pieces;
    }

    private static void isolate(Pattern pattern, String text, List<String> out) {
        Matcher matcher = pattern.matcher(text);
        int at = 0;
        while (matcher.find()) {
            if (matcher.end() == matcher.start()) {
                continue;
            }
            if (matcher.start() > at) {
                out.add(text.substring(at, matcher.start()));
            }
            out.add(matcher.group());
            at = matcher.end();
        }
        if (at < text.length()) {
            out.add(text.substring(at));
        }
    }
}
