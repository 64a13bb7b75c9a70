// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Map;

/// Python's JSON, as `json.dumps` writes it without escapes of other characters than it must.
final class PythonJson {
    private PythonJson() {}

    /// The filter `tojson` as Hugging Face defines it.
    static String write(Object value, Parameters p) {
        p.only("ensure_ascii", "indent", "separators", "sort_keys");
        if (p.flag(0, "ensure_ascii")
                || p.flag(3, "sort_keys")
                || p.get(2, "separators").filter(each -> each != None.NONE).isPresent()) {
            throw TemplateException.unsupported("tojson with " + p.positional() + p.named());
        }
        var indent = p.get(1, "indent").filter(each -> each != None.NONE);
        var out = new StringBuilder();
        write(out, value, indent.map(each -> (int) Values.integer(each, p.of())).orElse(-1), 0);
        return out.toString();
    }

    /// @param indent blanks per level; negative for one line
    private static void write(StringBuilder out, Object value, int indent, int level) {
        switch (value) {
            case String text -> string(out, text);
            case Boolean flag -> out.append(flag ? "true" : "false");
            case None _ -> out.append("null");
            case Long number -> out.append(number);
            case Double number -> out.append(Values.decimal(number));
            case List<?> list -> {
                out.append('[');
                String comma = "";
                for (var each : list) {
                    out.append(comma);
                    line(out, indent, level + 1);
                    write(out, each, indent, level + 1);
                    comma = indent < 0 ? ", " : ",";
                }
                if (!list.isEmpty()) {
                    line(out, indent, level);
                }
                out.append(']');
            }
            case Map<?, ?> map -> {
                out.append('{');
                String comma = "";
                for (var entry : map.entrySet()) {
                    out.append(comma);
                    line(out, indent, level + 1);
                    string(out, Values.string(entry.getKey(), "a key of tojson"));
                    out.append(": ");
                    write(out, entry.getValue(), indent, level + 1);
                    comma = indent < 0 ? ", " : ",";
                }
                if (!map.isEmpty()) {
                    line(out, indent, level);
                }
                out.append('}');
            }
            case Undefined undefined -> throw undefined.error();
            default -> throw new TemplateException("tojson of a " + Values.type(value));
        }
    }

    private static void line(StringBuilder out, int indent, int level) {
        if (indent >= 0) {
            out.append('\n').append(" ".repeat(indent * level));
        }
    }

    private static void string(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            switch (c) {
                case '"' -> out.append("\\\"");
                case '\\' -> out.append("\\\\");
                case '\n' -> out.append("\\n");
                case '\r' -> out.append("\\r");
                case '\t' -> out.append("\\t");
                case '\f' -> out.append("\\f");
                case '\b' -> out.append("\\b");
                default -> {
                    if (c < 0x20) {
                        out.append(String.format("\\u%04x", (int) c));
                    } else {
                        out.append(c);
                    }
                }
            }
        }
        out.append('"');
    }
}
