// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// Cuts a template into text, statements and expressions, as Jinja does with `trim_blocks` and
/// `lstrip_blocks`.
final class Lexer {
    private static final Pattern TOKEN =
            Pattern.compile(
                    "(?<space>\\s+)"
                            + "|(?<float>(?<!\\.)\\d+(?:_\\d+)*(?:(?:\\.\\d+(?:_\\d+)*)?[eE][+-]?\\d+(?:_\\d+)*|\\.\\d+(?:_\\d+)*))"
                            + "|(?<integer>\\d+(?:_\\d+)*)"
                            + "|(?<name>[\\p{L}_][\\p{L}\\p{N}_]*)"
                            + "|(?<string>'(?:[^'\\\\]|\\\\.)*+'|\"(?:[^\"\\\\]|\\\\.)*+\")"
                            + "|(?<operator>//|\\*\\*|==|!=|>=|<=|[-+/*%~()\\[\\]{}<>=.:|,;])",
                    Pattern.DOTALL | Pattern.UNICODE_CHARACTER_CLASS);
    private static final Pattern NEWLINE = Pattern.compile("\r\n|\r|\n");

    enum Kind {
        TEXT,
        BEGIN_BLOCK,
        END_BLOCK,
        BEGIN_PRINT,
        END_PRINT,
        NAME,
        STRING,
        INTEGER,
        FLOAT,
        OPERATOR,
        END
    }

    /// @param text of a string: its characters, without quotes and escapes
    record Token(Kind kind, String text, int line) {
        boolean is(String operator) {
            return kind == Kind.OPERATOR && text.equals(operator);
        }

        boolean isName(String name) {
            return kind == Kind.NAME && text.equals(name);
        }
    }

    private final String source;
    private final List<Token> tokens = new ArrayList<>();
    private int at;
    private int line = 1;

    private Lexer(String source) {
        this.source = source;
    }

    static List<Token> tokens(String template) {
        var source = NEWLINE.matcher(template).replaceAll("\n");
        var lexer =
                new Lexer(
                        source.endsWith("\n") ? source.substring(0, source.length() - 1) : source);
        lexer.run();
        return lexer.tokens;
    }

    private void run() {
        boolean lineStarts = true;
        while (at < source.length()) {
            int begin = nextBegin();
            if (begin < 0) {
                text(source.substring(at));
                break;
            }
            var text = source.substring(at, begin);
            char kind = source.charAt(begin + 1);
            char sign = begin + 2 < source.length() ? source.charAt(begin + 2) : ' ';
            if (sign == '-') {
                text(Strings.rstrip(text));
            } else if (sign != '+' && kind != '{') {
                text(withoutIndent(text, lineStarts));
            } else {
                text(text);
            }
            countLines(text);
            at = begin + 2 + (sign == '-' || sign == '+' ? 1 : 0);
            switch (kind) {
                case '#' -> comment();
                case '%' -> inside(Kind.BEGIN_BLOCK, Kind.END_BLOCK, "%}");
                default -> inside(Kind.BEGIN_PRINT, Kind.END_PRINT, "}}");
            }
            lineStarts = source.charAt(at - 1) == '\n';
        }
        tokens.add(new Token(Kind.END, "", line));
    }

    private int nextBegin() {
        for (int i = source.indexOf('{', at); i >= 0; i = source.indexOf('{', i + 1)) {
            if (i + 1 < source.length() && "{%#".indexOf(source.charAt(i + 1)) >= 0) {
                return i;
            }
        }
        return -1;
    }

    private void text(String text) {
        if (!text.isEmpty()) {
            tokens.add(new Token(Kind.TEXT, text, line));
        }
    }

    /// Without the blanks before a tag that is the first thing in its line.
    private static String withoutIndent(String text, boolean lineStarts) {
        int from = text.lastIndexOf('\n') + 1;
        return (from > 0 || lineStarts) && Strings.isSpace(text.substring(from))
                ? text.substring(0, from)
                : text;
    }

    private void comment() {
        int end = source.indexOf("#}", at);
        if (end < 0) {
            throw new TemplateException("line " + line + ": missing end of comment");
        }
        countLines(source.substring(at, end));
        char sign = end > at ? source.charAt(end - 1) : ' ';
        at = end + 2;
        skipAfter(sign, true);
    }

    /// Skips the text behind a tag that its end removes.
    private void skipAfter(char sign, boolean trimmed) {
        int from = at;
        if (sign == '-') {
            while (at < source.length() && Strings.isSpace(source.charAt(at))) {
                at++;
            }
        } else if (trimmed && sign != '+' && at < source.length() && source.charAt(at) == '\n') {
            at++;
        }
        countLines(source.substring(from, at));
    }

    private void countLines(String passed) {
        line += (int) passed.chars().filter(c -> c == '\n').count();
    }

    private void inside(Kind begin, Kind end, String close) {
        tokens.add(new Token(begin, "", line));
        int depth = 0;
        Matcher matcher = TOKEN.matcher(source);
        while (true) {
            if (depth == 0) {
                boolean signed =
                        at < source.length()
                                && (source.charAt(at) == '-'
                                        || source.charAt(at) == '+' && end == Kind.END_BLOCK)
                                && source.startsWith(close, at + 1);
                if (signed || source.startsWith(close, at)) {
                    char sign = signed ? source.charAt(at) : ' ';
                    at += close.length() + (signed ? 1 : 0);
                    tokens.add(new Token(end, "", line));
                    skipAfter(sign, end == Kind.END_BLOCK);
                    return;
                }
            }
            if (at >= source.length() || !matcher.region(at, source.length()).lookingAt()) {
                throw new TemplateException(
                        "line "
                                + line
                                + (at >= source.length()
                                        ? ": the tag does not end"
                                        : ": unexpected character " + source.charAt(at)));
            }
            depth += token(matcher);
            at = matcher.end();
        }
    }

    /// @return how many brackets it opens
    private int token(Matcher matcher) {
        var text = matcher.group();
        if (matcher.group("space") != null) {
            countLines(text);
            return 0;
        }
        if (matcher.group("string") != null) {
            var content = text.substring(1, text.length() - 1);
            tokens.add(new Token(Kind.STRING, Strings.unescape(content), line));
            countLines(text);
            return 0;
        }
        var kind =
                matcher.group("float") != null
                        ? Kind.FLOAT
                        : matcher.group("integer") != null
                                ? Kind.INTEGER
                                : matcher.group("name") != null ? Kind.NAME : Kind.OPERATOR;
        tokens.add(new Token(kind, text, line));
        return switch (text) {
            case "(", "[", "{" -> 1;
            case ")", "]", "}" -> -1;
            default -> 0;
        };
    }
}
