// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import java.util.Optional;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/// A regular expression of a user, matched against keys with a limited number of steps: some
/// expressions take time that is exponential in the length of the key.
///
/// Threading: one thread.
final class KeyExpression {
    /// Characters that are looked at for each one of a key, without limit on the number of keys.
    private static final long STEPS_PER_CHARACTER = 64;

    /// Beyond that, for all keys together: less than a second.
    private static final long MOST_STEPS = 1L << 26;

    private final Pattern pattern;
    private long rest = MOST_STEPS;

    private KeyExpression(Pattern pattern) {
        this.pattern = pattern;
    }

    /// @return empty for what is none, or is nested too deeply
    static Optional<KeyExpression> of(String regex) {
        try {
            return Optional.of(new KeyExpression(Pattern.compile(regex)));
        } catch (PatternSyntaxException | StackOverflowError _) {
            return Optional.empty();
        }
    }

    /// Whether it matches the whole key.
    ///
    /// @throws TooManySteps when it takes more than all keys together may take
    boolean matches(String key) {
        try {
            return pattern.matcher(new Counted(key, 0, key.length())).matches();
        } catch (StackOverflowError _) {
            throw new TooManySteps();
        }
    }

    /// An expression was given up.
    static final class TooManySteps extends RuntimeException {
        private static final long serialVersionUID = 1;

        TooManySteps() {
            super("the expression takes too many steps", null, false, false);
        }
    }

    /// A key that counts how often it is looked at.
    private final class Counted implements CharSequence {
        private final String key;
        private final int from;
        private final int to;
        private long own;

        Counted(String key, int from, int to) {
            this.key = key;
            this.from = from;
            this.to = to;
            this.own = STEPS_PER_CHARACTER * (to - from + 1L);
        }

        @Override
        public char charAt(int index) {
            own--;
            if (own < 0) {
                rest--;
            }
            if (rest < 0) {
                throw new TooManySteps();
            }
            return key.charAt(from + index);
        }

        @Override
        public int length() {
            return to - from;
        }

        @Override
        public CharSequence subSequence(int start, int end) {
            return new Counted(key, from + start, from + end);
        }

        @Override
        public String toString() {
            return key.substring(from, to);
        }
    }
}
