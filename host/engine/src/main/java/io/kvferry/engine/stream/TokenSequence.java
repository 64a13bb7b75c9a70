// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import java.util.Arrays;
import java.util.Objects;

/// The tokens of a request: its prompt, and behind it what is generated, in pages, so that one more
/// token never copies those before it.
///
/// Threading: one thread appends. Any other may read the tokens that it has been told of: what is
/// appended does not change.
public final class TokenSequence {
    private static final int SHIFT = 8;
    private static final int PAGE = 1 << SHIFT;

    private final int[] prompt;
    private final int promptCount;

    /// Replaced when it is full, the pages stay; volatile for those who read meanwhile.
    private volatile int[][] pages;

    private int generated;

    /// @param prompt not copied, and never changed
    public TokenSequence(int[] prompt) {
        this.prompt = prompt;
        this.promptCount = prompt.length;
        this.pages = new int[4][];
    }

    /// Prompt and generated tokens.
    public int count() {
        return promptCount + generated;
    }

    public int promptCount() {
        return promptCount;
    }

    /// Tokens of the prompt, for readers that go through many of them.
    public int[] prompt() {
        return prompt;
    }

    public int get(int position) {
        int behind = position - promptCount;
        return behind < 0 ? prompt[position] : pages[behind >>> SHIFT][behind & PAGE - 1];
    }

    /// Copies generated tokens.
    ///
    /// @param most how many of them, from the first one on
    int[] generated(int most) {
        var copy = new int[most];
        var from = pages;
        for (int at = 0; at < most; at += PAGE) {
            System.arraycopy(from[at >>> SHIFT], 0, copy, at, Math.min(PAGE, most - at));
        }
        return copy;
    }

    /// The token after the last one.
    public void append(int token) {
        int page = generated >>> SHIFT;
        var all = pages;
        if (page == all.length) {
            all = Arrays.copyOf(all, 2 * page);
            pages = all; // no more often: a volatile write for each token would cost a fence
        }
        if ((generated & PAGE - 1) == 0) {
            all[page] = new int[PAGE];
        }
        Objects.requireNonNull(all[page])[generated & PAGE - 1] = token;
        generated++;
    }
}
