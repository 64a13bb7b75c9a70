# SPDX-License-Identifier: Apache-2.0
"""Prints the fields of vLLM's requests, for host/serving/src/test/resources/vllm-VERSION-request-fields.txt.

Reads the source in a wheel and imports nothing. Usage: request-fields.py vllm-0.33.0-*.whl
(pip download --no-deps vllm==0.33.0)
"""

import ast
import json
import sys
import zipfile

REQUESTS = {"completion": "CompletionRequest", "chat_completion": "ChatCompletionRequest"}


def default(node):
    """Of a field, as JSON; "?" where it has none that JSON can say."""
    if isinstance(node, ast.Call):
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default" in named:
            return default(named["default"])
        if "default_factory" in named:
            return "[]" if ast.unparse(named["default_factory"]) == "list" else "?"
        return default(node.args[0]) if node.args else "?"
    try:
        return json.dumps(ast.literal_eval(node)) if node else "?"
    except ValueError:
        return "?"


def main(wheel):
    fields = {}
    with zipfile.ZipFile(wheel) as archive:
        for module, name in REQUESTS.items():
            tree = ast.parse(archive.read(f"vllm/entrypoints/openai/{module}/protocol.py"))
            request = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
            for each in request.body:
                if isinstance(each, ast.AnnAssign) and not each.target.id.startswith("_"):
                    fields.setdefault(each.target.id, {})[module] = default(each.value)
    for field, defaults in fields.items():
        print(field, *(defaults.get(module, "-") for module in REQUESTS))


if __name__ == "__main__":
    main(sys.argv[1])
