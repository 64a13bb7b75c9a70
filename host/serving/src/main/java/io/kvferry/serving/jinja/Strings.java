// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/// Python's strings: sequences of code points, with Python's idea of white space.
final class Strings {
    private Strings() {}

    /// Python's `isspace` of one character.
    static boolean isSpace(int c) {
        return c >= 9 && c <= 13
                || c >= 0x1c && c <= 0x20
                || c == 0x85
                || c == 0xa0
                || c == 0x1680
                || c >= 0x2000 && c <= 0x200a
                || c == 0x2028
                || c == 0x2029
                || c == 0x202f
                || c == 0x205f
                || c == 0x3000;
    }

    /// Python's `isspace`: not of the empty string.
    static boolean isSpace(String text) {
        return !text.isEmpty() && text.chars().allMatch(Strings::isSpace);
    }

    static String rstrip(String text) {
        int end = text.length();
        while (end > 0 && isSpace(text.charAt(end - 1))) {
            end--;
        }
        return text.substring(0, end);
    }

    static String lstrip(String text) {
        int from = 0;
        while (from < text.length() && isSpace(text.charAt(from))) {
            from++;
        }
        return text.substring(from);
    }

    static String strip(String text) {
        return lstrip(rstrip(text));
    }

    static String lstrip(String text, String characters) {
        int from = 0;
        while (from < text.length() && characters.indexOf(text.codePointAt(from)) >= 0) {
            from += Character.charCount(text.codePointAt(from));
        }
        return text.substring(from);
    }

    static String rstrip(String text, String characters) {
        int end = text.length();
        while (end > 0 && characters.indexOf(text.codePointBefore(end)) >= 0) {
            end -= Character.charCount(text.codePointBefore(end));
        }
        return text.substring(0, end);
    }

    static int length(String text) {
        return text.codePointCount(0, text.length());
    }

    /// One string for each code point.
    static List<Object> characters(String text) {
        var list = new ArrayList<Object>(text.length());
        text.codePoints().forEach(c -> list.add(Character.toString(c)));
        return list;
    }

    /// Python's `split` at white space, or at a separator.
    ///
    /// @param most splits; negative for all
    static List<Object> split(String text, String separator, long most) {
        var parts = new ArrayList<Object>();
        int from = 0;
        for (int end = text.indexOf(separator);
                end >= 0 && most != 0;
                end = text.indexOf(separator, from), most--) {
            parts.add(text.substring(from, end));
            from = end + separator.length();
        }
        parts.add(text.substring(from));
        return parts;
    }

    static List<Object> split(String text, long most) {
        var parts = new ArrayList<Object>();
        var rest = lstrip(text);
        while (!rest.isEmpty()) {
            int end = 0;
            while (end < rest.length() && !isSpace(rest.charAt(end))) {
                end++;
            }
            if (most == 0) {
                parts.add(rstrip(rest));
                break;
            }
            most--;
            parts.add(rest.substring(0, end));
            rest = lstrip(rest.substring(end));
        }
        return parts;
    }

    static List<Object> rsplit(String text, String separator, long most) {
        var parts = new ArrayList<Object>();
        int end = text.length();
        for (int at = text.lastIndexOf(separator);
                at >= 0 && most != 0;
                at = at == 0 ? -1 : text.lastIndexOf(separator, end - separator.length()), most--) {
            parts.addFirst(text.substring(at + separator.length(), end));
            end = at;
        }
        parts.addFirst(text.substring(0, end));
        return parts;
    }

    static String capitalize(String text) {
        if (text.isEmpty()) {
            return text;
        }
        int first = text.offsetByCodePoints(0, 1);
        return text.substring(0, first).toUpperCase(Locale.ROOT)
                + text.substring(first).toLowerCase(Locale.ROOT);
    }

    /// Each word's first letter in upper case, the others in lower case.
    static String title(String text) {
        var out = new StringBuilder(text.length());
        boolean inWord = false;
        for (int c : text.codePoints().toArray()) {
            boolean letter = Character.isLetter(c);
            out.appendCodePoint(
                    !letter ? c : inWord ? Character.toLowerCase(c) : Character.toTitleCase(c));
            inWord = letter;
        }
        return out.toString();
    }

    /// Python's `replace`.
    ///
    /// @param most replacements; negative for all
    static String replace(String text, String old, String now, long most) {
        if (most < 0) {
            return text.replace(old, now);
        }
        if (old.isEmpty()) {
            throw TemplateException.unsupported("replacing the empty string with a limit");
        }
        var parts = split(text, old, most);
        return String.join(now, parts.stream().map(String.class::cast).toList());
    }

    /// Resolves the escapes of a literal.
    static String unescape(String literal) {
        if (literal.indexOf('\\') < 0) {
            return literal;
        }
        var out = new StringBuilder(literal.length());
        for (int i = 0; i < literal.length(); i++) {
            char c = literal.charAt(i);
            if (c != '\\' || i + 1 == literal.length()) {
                out.append(c);
                continue;
            }
            char escape = literal.charAt(++i);
            switch (escape) {
                case 'n' -> out.append('\n');
                case 't' -> out.append('\t');
                case 'r' -> out.append('\r');
                case 'a' -> out.append('\u0007');
                case 'b' -> out.append('\b');
                case 'f' -> out.append('\f');
                case 'v' -> out.append('\u000b');
                case '\\', '\'', '"' -> out.append(escape);
                case '\n' -> {}
                case 'x' -> i = hex(literal, i, 2, out);
                case 'u' -> i = hex(literal, i, 4, out);
                case 'U' -> i = hex(literal, i, 8, out);
                case 'N' -> throw TemplateException.unsupported("the escape \\N");
                default -> {
                    if (escape < '0' || escape > '7') {
                        out.append('\\').append(escape);
                    } else {
                        int end = i + 1;
                        while (end < literal.length()
                                && end < i + 3
                                && literal.charAt(end) >= '0'
                                && literal.charAt(end) <= '7') {
                            end++;
                        }
                        out.append((char) Integer.parseInt(literal.substring(i, end), 8));
                        i = end - 1;
                    }
                }
            }
        }
        return out.toString();
    }

    /// @return where the escape ends
    private static int hex(String literal, int at, int digits, StringBuilder out) {
        int end = at + 1 + digits;
        try {
            out.appendCodePoint(Integer.parseInt(literal.substring(at + 1, end), 16));
        } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
            throw new TemplateException("a broken escape in the string " + literal);
        }
        return end - 1;
    }
}
