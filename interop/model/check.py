# SPDX-License-Identifier: Apache-2.0
"""Asks `kvferry serve`, with no other option than the model, a question whose answer is known.

Usage: check.py KVFERRY_LAUNCHER MODEL-FOLDER
"""

import json
import subprocess
import sys
import urllib.request


def main(launcher, model):
    process = subprocess.Popen(
        [launcher, "serve", "--model", model, "--port", "0", "--json", "--stop-with-stdin"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(process.stdout.readline() or '{"url": ""}')
        if not ready["url"]:
            sys.exit("serve did not start")
        question = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
                    "max_tokens": 16, "temperature": 0}
        request = urllib.request.Request(ready["url"] + "/v1/chat/completions", json.dumps(question).encode())
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)["choices"][0]
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    text = answer["message"]["content"]
    assert "Paris" in text and answer["finish_reason"] == "stop", answer
    print(f"{ready['model']} on runner {ready['runner']}: {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
