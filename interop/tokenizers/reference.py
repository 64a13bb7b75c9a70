# SPDX-License-Identifier: Apache-2.0
"""How Hugging Face renders chat templates: Python's Jinja with the settings of transformers' apply_chat_template."""

import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks what the assistant says."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def render(template, **variables):
    """The text, or None where Jinja fails."""
    try:
        return environment().from_string(template).render(**variables)
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        return None


def render_chat(template, messages, specials):
    return render(
        template, messages=messages, tools=None, documents=None, add_generation_prompt=True, **specials)


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = {
    "plain": [turn("user", "Call me Ishmael.")],
    "system": [
        turn("system", " Be brief.\n"),
        turn("user", "  Why 'now'?\n\nYes \"you\" <b>&</b> {{x}} {% if %} "),
        turn("assistant", "Grüße\t\\n"),
        turn("user", "日本 😀\n")],
    "turns": [
        turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", " d "), turn("user", "e")],
    "think": [
        turn("system", "s"), turn("user", "q1"),
        turn("assistant", "<think>\nwell, hm\n</think>\n\nanswer 1"), turn("user", "q2"),
        turn("assistant", "<think>\n\n</think>\n\nanswer 2"), turn("user", "q3 /no_think")],
    "falsy": [turn("system", "false"), turn("user", "0"), turn("assistant", "False"), turn("user", "none")],
    "empty": [turn("system", ""), turn("user", ""), turn("assistant", ""), turn("user", "x")],
    "last": [turn("user", "q"), turn("assistant", "<think>\nz\n</think>\n\nbegin of ")],
    "order": [turn("user", "a"), turn("user", "b"), turn("system", "late"), turn("assistant", "c")],
    "tool": [
        turn("user", "<tool_response>x</tool_response>"), turn("assistant", "</think>"),
        turn("user", "<tool_response>\ny\n</tool_response>")],
    "named": [
        turn("system", "s", name="boss"), turn("user", "u", name="ann"), turn("assistant", "v", name="bot"),
        turn("user", "w", name="bob")],
    "override": [turn("system", "You are small. /system_override /no_think"), turn("user", "u")],
}

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
