# SPDX-License-Identifier: Apache-2.0
"""Writes what the tests of host/serving compare with: golden.json, constructs.json and the small tokenizers beside them.

Needs jinja2 and tokenizers from PyPI. Usage: golden.py, in any folder
"""

import json
import pathlib

import tokenizers
from tokenizers import (
    AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)

import reference

RESOURCES = pathlib.Path(__file__).resolve().parents[2] / "host/serving/src/test/resources"

LIST = [3, 1, 2]
MESSAGES = [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}, {"role": "user", "content": ""}]
VARIABLES = {"x": " a-b-a ", "n": 7, "none_": None, "yes": True, "list": LIST, "messages": MESSAGES,
             "map": {"b": 1, "A": "z", "items": 2}, "wide": "日本😀x", "empty": "", "false": "false"}

# One line each: what templates are made of, and what must fail.
CONSTRUCTS = """\
{{ x }}|{{- x -}} | {{ x }}
{{ messages[::-1] | map(attribute='content') | join(',') }}
{{ list[::-1] | join }}{{ list[1:] | join }}{{ list[:-1] | join }}{{ list[-2:] | join }}{{ list[::2] | join }}{{ list[5:] | join }}{{ list[-9:2] | join }}{{ list[2:0:-1] | join }}{{ list[:0:-1] | join }}
{{ wide[::-1] }}{{ wide[2] }}{{ wide[-1] }}{{ wide[:3] }}{{ wide | length }}{{ wide[9] }}
{{ x.strip() }}|{{ x.lstrip() }}|{{ x.rstrip() }}|{{ x.strip(' a') }}|{{ x.lstrip('a ') }}|{{ x.rstrip('a ') }}
{{ '\\u00a0\\u3000a\\x1c\\u200b'.strip() | length }}{{ '\\x00 a'.strip() | length }}{{ '\\u00a0 a' | trim | length }}
{{ x.split('-') | join('+') }}|{{ x.split() | join('+') }}|{{ x.split('-', 1) | join('+') }}|{{ x.rsplit('-', 1) | join('+') }}|{{ x.split('-')[-1] }}|{{ 'a  b c'.split(None, 1) | join('+') }}|{{ ''.split('a') | length }}{{ ''.split() | length }}
{{ x.split('') }}
{{ x.replace('a', 'c') }}|{{ x.replace('a', 'c', 1) }}|{{ x | replace('-', '') }}|{{ 'ab'.replace('', '.') }}
{{ x.startswith(' a') }}{{ x.endswith(('x', 'a ')) }}{{ x.find('b') }}{{ x.count('a') }}{{ 'Ab'.upper() }}{{ 'Ab'.lower() }}{{ 'ab cD'.title() }}{{ 'ab cD'.capitalize() }}{{ 'a' in x }}{{ 'z' not in x }}
{{ 'a{}b{}'.format(1, 'x') }}{{ '{0}{0}{y}'.format('q', y=2) }}{{ '{{}}'.format() }}
{{ ','.join(['a', 'b']) }}{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }}{{ ' '.isspace() }}{{ '12'.isdigit() }}
{{ missing }}|{{ missing | default('d') }}|{{ missing is defined }}|{{ missing is undefined }}|{{ 'a' in missing }}|{{ missing == other }}|{{ missing ~ 'a' }}
{{ missing.attribute }}
{{ missing + 'a' }}
{{ missing() }}
{{ 'a' + 1 }}
{{ 'a' + none_ }}
{{ none_ }}|{{ none_ is none }}|{{ none_ == none }}|{{ none_.x is defined }}|{{ none_ or 'd' }}|{{ none_ | default('d') }}|{{ none_ | default('d', true) }}
{{ 'a' in none_ }}
{% for a in none_ %}{% endfor %}
{{ yes }}|{{ not yes }}|{{ yes == 1 }}|{{ yes is boolean }}|{{ yes is true }}|{{ 1 is true }}|{{ yes and 'a' }}|{{ yes + 1 }}
{% if false %}t{% endif %}{% if empty %}t{% endif %}{% if [] %}t{% endif %}{% if {} %}t{% endif %}{% if 0 %}t{% endif %}{% if 0.0 %}t{% endif %}{% if none %}t{% endif %}
{% if messages[2].content %}t{% else %}f{% endif %}{% if 'false' %}t{% endif %}{% if 'False' %}t{% endif %}{% if '0' %}t{% endif %}
{{ '1' == 1 }}{{ 'a' == 'a' }}{{ 1 == 1.0 }}{{ [1, 'a'] == [1, 'a'] }}{{ 'true' == true }}{{ none == false }}{{ {'a': 1} == {'a': 1} }}{{ (1, 2) != (1, 3) }}
{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 'a' < 'b' }}{{ 2 <= 2 }}{{ 1.5 >= 2 }}
{{ 'a' < 1 }}
{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 * 3 }}{{ 1 - 2 }}{{ 'ab' * 2 }}{{ 1 + 2 * 3 }}{{ (1 + 2) * 3 }}{{ -n }}{{ 1.5 + 1 }}
{{ 1 / 0 }}
{{ 'a' ~ 1 ~ none ~ true }}{{ 'a' ~ 'b' + 'c' }}
{{ 'a' 'b' "c" }}{{ 'it\\'s' }}{{ "\\n\\t\\\\ \\u65e5 \\q \\x41 \\101" }}
{{ 'a' if yes else 'b' }}{{ 'a' if not yes }}{{ 'a' if missing is defined else 'b' if n == 7 else 'c' }}
{{ messages[0].role }}{{ messages[0]['role'] }}{{ messages[-1].role }}{{ messages[9] }}{{ messages[0].get('x') }}{{ messages[0].get('x', 'd') }}{{ messages.0.role }}
{{ messages[9].role }}
{{ map.b }}{{ map['items'] }}{{ map.items() | length }}{{ map.A }}{{ map.missing }}{{ 'b' in map }}{{ map | length }}
{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}{% for k in map %}{{ k }}{% endfor %}{% for k, v in map | items %}{{ k }}{% endfor %}{% for k, v in map | dictsort %}{{ k }}{{ v }}{% endfor %}{{ map.keys() | list | join }}{{ map.values() | list | length }}
{% for a in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('p', 'q') }};{% endfor %}
{% for a in list if a > 1 %}{{ a }}{{ loop.index }}{{ loop.last }}{% endfor %}{% for a in [] %}x{% else %}none{% endfor %}
{% for a in list %}{% if a == 1 %}{% continue %}{% endif %}{% if a == 2 %}{% break %}{% endif %}{{ a }}{% endfor %}
{% for a in list %}{% if loop.first %}{% set y = 'kept' %}{% endif %}{{ y }}|{% endfor %}{{ y }}
{% set y = 0 %}{% for a in list %}{% set y = y + a %}{{ y }}{% endfor %}{{ y }}
{% set ns = namespace(a=1, b='x') %}{% for a in list %}{% set ns.a = ns.a + a %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = (3, 4) %}{{ c[1] }}{% set d = 1, 2 %}{{ d | length }}
{% set map.b = 3 %}
{% set y %} in {{ n }} {% endset %}[{{ y }}]{% set y | upper %}ab{% endset %}{{ y }}
{% macro m(a, b='d', c=none) %}{{ a }}{{ b }}{{ c is none }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(a=3, c=4) }}{{ m() }}[{{ m('x') | length }}]
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% filter upper %}a{{ x }}{% endfilter %}{% generation %}g{{ n }}{% endgeneration %}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('content') | list | length }}{{ messages | map(attribute='role') | unique | join(',') }}{{ list | select('odd') | join }}{{ list | reject('in', [1]) | join }}{{ list | map('string') | join('+') }}
{% if messages | selectattr('role', 'equalto', 'nobody') %}true{% endif %}{{ none_ | selectattr('a') | list | length }}
{{ list | first }}{{ list | last }}{{ list | sort | join }}{{ list | sort(reverse=true) | join }}{{ list | reverse | join }}{{ list | min }}{{ list | max }}{{ list | list | length }}{{ [] | first }}{{ 'abc' | reverse }}{{ 'abc' | first }}
{{ ' a ' | trim }}{{ 'aB' | upper }}{{ 'aB' | lower }}{{ 'aB c' | capitalize }}{{ 5 | string + 'a' }}{{ '5' | int + 1 }}{{ 'x' | int }}{{ 'a\\nb\\n\\nc' | indent(2) }}{{ 'a\\nb' | indent(width=1, first=true) }}{{ 'a' | safe }}{{ -3 | abs }}
{{ messages[0] | tojson }}{{ ['é"\\\\\\n\\x01', 1, none, true, 1.5, [], {}] | tojson }}{{ {'a': [1, {'b': 2}]} | tojson(indent=2) }}
{{ x is string }}{{ n is number }}{{ n is integer }}{{ list is iterable }}{{ list is sequence }}{{ map is mapping }}{{ x is iterable }}{{ none_ is iterable }}{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is eq 7 }}{{ x is not string }}{{ 1 is in list }}{{ map is sequence }}{{ missing is iterable }}{{ range is callable }}
{{ not x is string }}{{ x is string and n is number }}{{ 'a' if x is string else 'b' }}{{ x is defined and x is not none and x | length > 2 }}
{{ range(3) | join }}{{ range(1, 4) | join }}{{ range(5, 0, -2) | join }}{{ dict(a=1).a }}
{{ range(200000) | length }}
{{ raise_exception('refused') }}
{{ strftime_now('%d %b %Y') }}{{ strftime_now('%A %B %y %m %H:%M:%S %j %I %p %a %%') }}
{{ {'a': 1, 'b': [1, 2]}.b[1] }}{{ {}.a is defined }}{{ {'a': {'b': 'c'}}['a']['b'] }}{{ [[1, 2], [3]][0][1] }}
{{ x | nofilter }}
{{ x is notest }}
{{ x
{% if x %}
{% endif %}
{% unknown %}
{{ 'a' }
{{ (1 }}
{{ x.append('a') }}
{{ list.append(4) }}
{% for a in list %}{% for b in list %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}
{% for m in messages %}{% if m.role == 'tool' and not (loop.previtem and loop.previtem.role == 'tool') %}[{% endif %}{{ m.role }}{% if loop.last or loop.nextitem.role != 'user' %}]{% endif %}{% endfor %}
{{ messages | length - 1 }}{{ (messages | length) * 2 }}{{ n ** 2 }}{{ not false and true }}{{ true or false and false }}
{{ 'a' * -1 }}|{{ [1] + [2] == [1, 2] }}|{{ true is false }}|{{ 1 in [true] }}
{# comment {{ x }} #}a{#- trimmed -#} b
{{ "%s" }}{{ '{%' }}{{ '}}' }}{{ "{#" }}
{% set content = messages[0].content %}{{ content | trim if content is string else '' }}{{ (content or 'y') | upper }}
{{ wide.split('')|length if false else wide.split('😀')|length }}{{ '😀'.strip('😀') | length }}{{ 'ǆ' | upper }}{{ '😀a'.find('a') }}
"""

# What the line-wise form cannot say: line breaks in the template itself.
LINES = [
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n",
    "  {%- if yes -%}  \n b  {%- endif +%}\n c",
    "a\n{%+ if yes %}x{% endif %}\nb",
    "a\n  {%+ if yes %}x{% endif +%}\nb",
    "  {{ n }}  \n  {{- n }}\n\n{{ n -}}\n\n x",
    "{# c #}\na\n  {# c #}\nb {#- c -#}  \n c",
    "{% for a in list %}\n  {{ a }}\n{% endfor %}\nz",
    "{% for a in list %}\n\n  {% if a > 1 %}\n  {{ a }}\n  {% endif %}\n{%- endfor %}\nz\n\n",
    "a\r\nb\r{% if yes %}\r\nc{% endif %}\r\n",
    "{{ 'a\nb' }}{{ 'x' \n ~ 'y' }}",
    "x {% if yes %} y {% endif %} z\n\t{% if yes %}\n\tt\n\t{% endif %}\n",
    "{%- set a = 1 -%}\n\n{%- if a %} k {% endif -%}\n ",
    "{%if yes%}a{%endif%}{%-if yes-%} b {%-endif-%} c",
    "{% if n == 1 %}one\n{% elif n == 7 %}\nseven\n{% else %}other\n{% endif %}",
    "a\u00a0\n{%- if yes %}\u3000b{% endif %}\u2003{{- n }}",
]

TEXTS = [
    "", " ", "Call me Ishmael. Some years ago - never mind how long precisely.", "  two  spaces\n\n\nand lines\r\n\ttab ",
    "I'll we've DON'T it's 1234567 3.14 x=y+1;", "Grüße aus Köln, señor naïve ﬁ e\u0301", "日本語の文章 한국어 русский العربية",
    "😀👩‍👩‍👧 \u200b zero", "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b <|im_start|> c", "\u0000\u0001 control \x7f",
    "def f(x):\n    return x ** 2  # comment\n", "AAAAAAAAAAAAAAAAAAAAAAAA aaaaaaaaaaaaaaaaaaaaaa", "https://example.org/a?b=c&d=%20"]

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPECIAL = ["<|im_start|>", "<|im_end|>"]


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator([text for text in TEXTS for _ in range(4)], trainer)
    return tokenizer


def byte_level(digits, normalizer=None, post=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT % digits), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trained(tokenizer, trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    if post:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=SPECIAL[0] + " $A", special_tokens=[(SPECIAL[0], tokenizer.token_to_id(SPECIAL[0]))])
    return tokenizer


def sentencepiece_bpe():
    """As Gemma and Llama 2: spaces become U+2581, unknown characters bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", *SPECIAL] + [f"<0x{i:02X}>" for i in range(256)]
    trained(tokenizer, trainers.BpeTrainer(
        vocab_size=460, special_tokens=special, limit_alphabet=60, show_progress=False))
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [each for each in whole["added_tokens"] if not each["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=SPECIAL[0] + " $A", special_tokens=[(SPECIAL[0], tokenizer.token_to_id(SPECIAL[0]))])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.UnigramTrainer(
        vocab_size=220, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False))


TOKENIZERS = {
    "qwen": lambda: byte_level("", normalizers.NFC()),
    "llama3": lambda: byte_level("{1,3}", post=True, ignore_merges=True),
    "sentencepiece": sentencepiece_bpe,
    "unigram": unigram,
}


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    templates = RESOURCES / "chat-templates"
    rendered = {}
    for file in sorted(templates.rglob("*.jinja")):
        text = file.read_text(encoding="utf-8")
        rendered[file.relative_to(templates).as_posix()] = {
            name: reference.render_chat(text, messages, reference.SPECIALS)
            for name, messages in reference.CONVERSATIONS.items()}
    write(templates / "golden.json", {
        "conversations": reference.CONVERSATIONS, "specials": reference.SPECIALS, "rendered": rendered})
    variables = {name: value for name, value in VARIABLES.items()}
    cases = [{"template": text, "result": reference.render(text, **variables)}
             for text in CONSTRUCTS.splitlines() + LINES]
    write(templates / "constructs.json", {"variables": variables, "cases": cases})
    folder = RESOURCES / "tokenizers"
    for name, make in TOKENIZERS.items():
        tokenizer = make()
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append({"text": text, "ids": ids, "bare": tokenizer.encode(text, add_special_tokens=False).ids,
                          "decoded": tokenizer.decode(ids)})
        write(folder / name / "golden.json", {"size": tokenizer.get_vocab_size(), "cases": cases})
    print(f"written with tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
