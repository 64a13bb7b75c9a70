// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;

/// The tokens of a request: its prompt, and behind it what is generated, in pages, so that one more
/// token never copies those before it.
///
/// Threading: one thread appends. Any other may read the tokens that [#published] counts: what is
/// appended does not change.
public final class TokenSequence {
    private static final VarHandle GENERATED = generatedHandle();
    private static final int SHIFT = 8;
    private static final int PAGE = 1 << SHIFT;
    private static final int[] NO_PAGE = {};

    private final int[] prompt;
    private final int promptCount;

    /// Replaced when it is full, the pages stay; volatile for those who read meanwhile.
    private volatile int[][] pages;

    /// The last page, for the thread that appends.
    private int[] tail = NO_PAGE;

    /// Written after the token that it counts.
    private int generated;

    private static VarHandle generatedHandle() {
        try {
            return MethodHandles.lookup()
                    .findVarHandle(TokenSequence.class, "generated", int.class);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("a field of this class", e);
        }
    }

    /// @param prompt not copied, and never changed
    public TokenSequence(int[] prompt) {
        this.prompt = prompt;
        this.promptCount = prompt.length;
        this.pages = new int[4][];
    }

    /// Prompt and generated tokens, for the thread that appends.
    public int count() {
        return promptCount + generated;
    }

    /// Generated tokens that the calling thread may read; whatever the appending thread did before
    /// it appended the last of them has happened before. Any thread.
    int published() {
        return (int) GENERATED.getAcquire(this);
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

    /// The token after the last one; publishes it.
    public void append(int token) {
        int at = generated & PAGE - 1;
        if (at == 0) {
            tail = addPage(generated >>> SHIFT);
        }
        tail[at] = token;
        GENERATED.setRelease(this, generated + 1); // a volatile write would cost a fence
    }

    private int[] addPage(int page) {
        var all = pages;
        if (page == all.length) {
            all = Arrays.copyOf(all, 2 * page);
            pages = all;
        }
        var added = new int[PAGE];
        all[page] = added;
        return added;
    }
}
