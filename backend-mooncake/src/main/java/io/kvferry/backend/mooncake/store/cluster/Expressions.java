// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/// Which expressions of a caller can be put into one of ours. Java checks them, and the library
/// reads them as ECMAScript: one whose groups and classes end elsewhere there would leave the group
/// that stands behind the prefix of our keys, and remove objects of others.
final class Expressions {
    private static final String SPECIAL = "\\^$.*+?()[]{}|";

    private Expressions() {}

    /// An expression that matches this text and nothing else.
    static String literal(String text) {
        var expression = new StringBuilder(text.length() + 16);
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (SPECIAL.indexOf(c) >= 0) {
                expression.append('\\');
            }
            expression.append(c);
        }
        return expression.toString();
    }

    /// Whether an expression is one, and its groups and classes are the same for both. Not so are
    /// quotations, `(?` other than `(?:`, classes in classes, classes that begin with `]`, and
    /// control characters.
    static boolean areSame(String regex) {
        try {
            Pattern.compile(regex);
        } catch (PatternSyntaxException _) {
            return false;
        }
        boolean inClass = false;
        for (int i = 0; i < regex.length(); i++) {
            switch (regex.charAt(i)) {
                case '\\' -> {
                    i++;
                    if (i == regex.length() || "QEc".indexOf(regex.charAt(i)) >= 0) {
                        return false;
                    }
                }
                case '[' -> {
                    if (inClass || regex.startsWith("]", i + 1) || regex.startsWith("^]", i + 1)) {
                        return false;
                    }
                    inClass = true;
                }
                case ']' -> inClass = false;
                case '(' -> {
                    if (!inClass && regex.startsWith("?", i + 1) && regex.charAt(i + 2) != ':') {
                        return false;
                    }
                }
                default -> {}
            }
        }
        return true;
    }
}
