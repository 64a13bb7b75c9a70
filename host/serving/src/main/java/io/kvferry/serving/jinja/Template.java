// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// A template that is rendered as Hugging Face sets Jinja up: blocks are trimmed, nothing is
/// escaped.
///
/// Unsupported parts of Jinja are refused: tags when the template is parsed, the rest when it is
/// evaluated.
///
/// Threading: immutable; any thread.
public final class Template {
    /// Jinja's, of a sandbox.
    private static final int MAX_RANGE = 100_000;

    private static final Map<String, Object> GLOBALS =
            Map.of(
                    "namespace", (Callee) Template::namespace,
                    "dict", (Callee) Template::dict,
                    "range", (Callee) Template::range);

    private final Statement body;

    private Template(Statement body) {
        this.body = body;
    }

    /// @throws TemplateException when it is not a template
    public static Template parse(String source) {
        try {
            return new Template(StatementParser.parse(source));
        } catch (StackOverflowError e) {
            throw new TemplateException("the template is nested too deeply");
        }
    }

    /// @param variables by name: strings, numbers, booleans, lists and maps of these, null for
    ///   none, and [Callee]s
    /// @param mostCharacters limit of the rendered text
    /// @throws TemplateException when the template raises an error, or needs something unsupported
    public String render(Map<String, ?> variables, int mostCharacters) {
        var all = new HashMap<>(GLOBALS);
        variables.forEach((name, value) -> all.put(name, Values.of(value)));
        var out = new Output(mostCharacters);
        try {
            body.run(new Scope(all), out);
        } catch (StackOverflowError e) {
            throw new TemplateException("the template recurses too deeply");
        }
        return out.text();
    }

    private static Object namespace(List<Object> arguments, Map<String, Object> named) {
        var attributes = new HashMap<String, Object>();
        for (var argument : arguments) {
            if (!(argument instanceof Map<?, ?> map)) {
                throw new TemplateException("namespace of a " + Values.type(argument));
            }
            map.forEach((key, value) -> attributes.put(Values.string(key, "namespace"), value));
        }
        attributes.putAll(named);
        return new Namespace(attributes);
    }

    private static Object dict(List<Object> arguments, Map<String, Object> named) {
        var map = new LinkedHashMap<Object, Object>();
        for (var argument : arguments) {
            if (!(argument instanceof Map<?, ?> other)) {
                throw TemplateException.unsupported("dict of a " + Values.type(argument));
            }
            map.putAll(other);
        }
        map.putAll(named);
        return map;
    }

    private static Object range(List<Object> arguments, Map<String, Object> named) {
        var p = new Parameters("range", arguments, named).only("start", "stop", "step");
        long first = p.integer(0, "start", 0);
        boolean one = arguments.size() == 1;
        long start = one ? 0 : first;
        long stop = one ? first : p.integer(1, "stop", 0);
        long step = p.integer(2, "step", 1);
        if (step == 0) {
            throw new TemplateException("a range with step 0");
        }
        var list = new ArrayList<Object>();
        for (long i = start; step > 0 ? i < stop : i > stop; i += step) {
            if (list.size() == MAX_RANGE) {
                throw new TemplateException("a range of more than " + MAX_RANGE + " numbers");
            }
            list.add(i);
        }
        return list;
    }
}
