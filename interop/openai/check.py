# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI client against `kvferry serve`, directly and through `kvferry route`.

Starts its own processes on ephemeral ports; they end with this one. Usage: check.py KVFERRY_LAUNCHER
"""

import json
import os
import subprocess
import sys
import tempfile

import openai

KEY = "interop-key"


class Service:
    """A kvferry process that prints one JSON line when it serves, and ends when its standard input does."""

    def __init__(self, launcher, *arguments):
        environment = dict(os.environ, KVFERRY_API_KEY=KEY)
        self.process = subprocess.Popen(
            [launcher, *arguments, "--port", "0", "--json", "--stop-with-stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{arguments[0]} did not start")
        self.url = json.loads(line)["url"]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def refused(call, *words):
    try:
        call()
    except openai.BadRequestError as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"not refused: {words}")


def check(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, timeout=60)
    model = client.models.list().data[0].id

    whole = client.completions.create(model=model, prompt="Call me Ishmael.", max_tokens=8, temperature=0)
    assert whole.usage.completion_tokens <= 8 and whole.choices[0].finish_reason in ("length", "stop")
    stream = client.completions.create(
        model=model, prompt="Call me Ishmael.", max_tokens=8, temperature=0, stream=True,
        stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Call me Ishmael."}]
    chat = client.chat.completions.create(
        model=model, messages=messages, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3)
    content = chat.choices[0].logprobs.content
    assert len(content) == chat.usage.completion_tokens
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in content)
    with client.chat.completions.create(
            model=model, messages=messages, max_tokens=6, temperature=0, stream=True) as events:
        deltas = [event.choices[0].delta for event in events]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == chat.choices[0].message.content

    several = client.completions.create(
        model=model, prompt=["One", "Two"], n=2, max_tokens=4, seed=3, temperature=1.0, logprobs=2, stop=["zzz"],
        presence_penalty=0.5, frequency_penalty=0.5, logit_bias={"5": -100}, user="interop",
        extra_body={"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1, "min_tokens": 2})
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert all(len(choice.logprobs.token_logprobs) >= 2 for choice in several.choices)
    again = client.completions.create(
        model=model, prompt=["One", "Two"], n=2, max_tokens=4, seed=3, temperature=1.0, logprobs=2, stop=["zzz"],
        presence_penalty=0.5, frequency_penalty=0.5, logit_bias={"5": -100}, user="interop",
        extra_body={"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1, "min_tokens": 2})
    assert [c.text for c in again.choices] == [c.text for c in several.choices], "a seed repeats"
    echoed = client.completions.create(model=model, prompt="Echo this", echo=True, max_tokens=1, temperature=0)
    assert echoed.choices[0].text.startswith("Echo this")

    refused(lambda: client.chat.completions.create(
        model=model, messages=messages, response_format={"type": "json_object"}), "response_format")
    refused(lambda: client.chat.completions.create(
        model=model, messages=messages,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]), "tools")
    refused(lambda: client.completions.create(model=model, prompt="a", max_tokens=-1), "max_tokens")
    refused(lambda: client.completions.create(model=model, prompt="a", stop=5), "stop")
    try:
        openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key was taken")
    except openai.AuthenticationError:
        pass
    try:
        client.completions.create(model="no-such-model", prompt="a")
        raise AssertionError("another model was taken")
    except openai.NotFoundError:
        pass
    return model


def main(launcher):
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        subprocess.run([launcher, "make-model", model], check=True, stdout=subprocess.DEVNULL)
        kv = json.dumps({"kv_connector": "DiskConnector", "kv_role": "kv_both",
                         "kv_connector_extra_config": {"shared_storage_path": os.path.join(folder, "kv")}})
        services = []
        try:
            engine = ["serve", "--runner", "llama", "--model", model, "--kv-transfer-config", kv]
            prefill = Service(launcher, *engine)
            services.append(prefill)
            decode = Service(launcher, *engine)
            services.append(decode)
            direct = openai.OpenAI(base_url=decode.url + "/v1", api_key=KEY, max_retries=0)
            name = check(decode.url)
            assert direct.models.retrieve(name).id == name
            router = Service(launcher, "route", "--hand-off", "CONTENT", "--prefill", prefill.url,
                             "--decode", decode.url)
            services.append(router)
            check(router.url)
        finally:
            for service in reversed(services):
                service.close()
    print(f"openai {openai.__version__}: server and router answer as the client expects")


if __name__ == "__main__":
    main(sys.argv[1])
