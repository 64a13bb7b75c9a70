// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.http.Json;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/// Each construct of templates, as Python's Jinja renders it with Hugging Face's settings:
/// `constructs.json`, written by `interop/tokenizers/golden.py`. Templates that Jinja refuses are
/// refused.
class TemplateTest {
    private static final int MOST = 1 << 20;

    private static ObjectNode constructs() throws IOException {
        try (var in = TemplateTest.class.getResourceAsStream("/chat-templates/constructs.json")) {
            return Json.parseObject(Objects.requireNonNull(in).readAllBytes());
        }
    }

    private static Map<String, @Nullable Object> variables(JsonNode json) {
        var variables = new HashMap<String, @Nullable Object>(Json.toMap((ObjectNode) json));
        variables.put("none_", null);
        variables.put(
                "raise_exception",
                (Callee)
                        (arguments, _) -> {
                            throw new TemplateException(String.valueOf(arguments));
                        });
        // The date is tested with the chat template that defines the function.
        var date = LocalDateTime.of(2026, 3, 5, 14, 7, 9);
        var format = "EEEE MMMM uu MM HH:mm:ss DDD hh a EEE '%'";
        variables.put(
                "strftime_now",
                (Callee)
                        (arguments, _) ->
                                DateTimeFormatter.ofPattern(
                                                "%d %b %Y".equals(arguments.getFirst())
                                                        ? "dd MMM uuuu"
                                                        : format,
                                                Locale.ENGLISH)
                                        .format(date));
        return variables;
    }

    @TestFactory
    Stream<DynamicTest> rendersWhatJinjaRenders() throws IOException {
        var constructs = constructs();
        var variables = variables(constructs.path("variables"));
        return StreamSupport.stream(constructs.path("cases").spliterator(), false)
                .map(each ->
                        DynamicTest.dynamicTest(
                                each.path("template").asString(), () -> check(each, variables)));
    }

    private static void check(JsonNode construct, Map<String, @Nullable Object> variables) {
        var template = construct.path("template").asString();
        if (construct.path("result").isNull()) {
            assertThatThrownBy(() -> Template.parse(template).render(variables, MOST))
                    .isInstanceOf(TemplateException.class);
        } else {
            assertThat(Template.parse(template).render(variables, MOST))
                    .isEqualTo(construct.path("result").asString());
        }
    }

    /// Constructs that Jinja renders and this package does not support are refused, never rendered
    /// differently.
    @Test
    void refusesByNameWhatIsNotSupported() {
        var cases =
                Map.of(
                        "{% include 'a' %}", "include",
                        "{% raw %}a{% endraw %}", "raw",
                        "{{ 'a%s' % 'b' }}", "apply %",
                        "{{ ['a'] }}", "printing a list",
                        "{{ {'a': 1} }}", "printing a mapping",
                        "{{ 'a'.swapcase() }}", "swapcase",
                        "{{ 'a' | center(3) }}", "center",
                        "{{ 1 is sameas 1 }}", "sameas",
                        "{{ 1e30 }}", "1.0E30",
                        "{{ ''.__class__ }}", "__class__");
        cases.forEach((template, word) ->
                assertThatThrownBy(() -> Template.parse(template).render(Map.of(), MOST))
                        .as(template)
                        .isInstanceOf(TemplateException.class)
                        .hasMessageContaining(word));
    }

    @Test
    void boundsWhatATemplateRenders() {
        var long_ = "{% for a in range(1000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}";
        assertThatThrownBy(() -> Template.parse(long_).render(Map.of(), 1000))
                .hasMessageContaining("longer than 1000");
        var endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assertThatThrownBy(() -> Template.parse(endless).render(Map.of(), 1000))
                .isInstanceOf(TemplateException.class)
                .hasMessageContaining("deeply");
        var nested = "{{ " + "(".repeat(100_000) + "1" + ")".repeat(100_000) + " }}";
        assertThatThrownBy(() -> Template.parse(nested)).hasMessageContaining("deeply");
        assertThatThrownBy(
                        () -> Template.parse("{{ x * 10000000 }}").render(Map.of("x", "abc"), MOST))
                .hasMessageContaining("2^20");
    }

    /// A broken template ends in an error that says so, whatever is broken.
    @Test
    void survivesMutatedTemplates() throws IOException {
        var constructs = constructs();
        var variables = variables(constructs.path("variables"));
        var random = new Random(12);
        var pieces =
                List.of("{{", "}}", "{%", "%}", "|", ".", "[", "]", "(", ")", "'", "-", "if", " ");
        for (var each : constructs.path("cases")) {
            var text = each.path("template").asString();
            for (int i = 0; i < 40; i++) {
                int at = random.nextInt(text.length() + 1);
                int to = Math.min(text.length(), at + random.nextInt(4));
                var mutated =
                        text.substring(0, at)
                                + pieces.get(random.nextInt(pieces.size()))
                                + text.substring(to);
                try {
                    Template.parse(mutated).render(variables, MOST);
                } catch (TemplateException _) {
                    continue; // any other exception is a defect
                }
            }
        }
    }
}
