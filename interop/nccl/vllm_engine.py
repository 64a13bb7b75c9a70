# SPDX-License-Identifier: Apache-2.0
"""vLLM's own P2pNcclEngine over pyzmq and msgpack, with tensors that travel by the C double of NCCL.

  vllm_engine.py FOLDER DOUBLE PORT SEND_TYPE prefill|decode

FOLDER has vLLM's p2p_nccl_engine.py and pynccl_wrapper.py (interop/install-peers vllm-p2p), DOUBLE is the compiled
backend-nccl/src/test/resources/native/nccl_double.c. Each line of the input is a JSON array, answered by a line "@ " with
JSON:

  ["send", TENSOR_ID, SHAPE, DTYPE, BASE64, REMOTE]  send_tensor; whether it was sent
  ["receive", TENSOR_ID, REMOTE]                     recv_tensor; [SHAPE, DTYPE, BASE64], null for none
  ["holds", TENSOR_ID]                               whether it was put
  ["pause", "send"|"receive", N]                     the Nth tensor from now on stops its thread, which says "paused"
  ["misuse"]                                         what real NCCL would have answered with a hang or worse
"""
import base64
import json
import logging
import queue
import sys
import threading

from stand_ins import Config, Double, Pauses, load, modules

out = threading.Lock()


def say(value):
    with out:
        print("@ " + json.dumps(value), flush=True)


def lines():
    """Of the input, read by a thread of its own: whoever writes them must not wait for a paused tensor."""
    read = queue.SimpleQueue()

    def run():
        for line in sys.stdin:
            read.put(line)
        read.put(None)

    threading.Thread(target=run, daemon=True).start()
    return iter(read.get, None)


def main(folder, library, port, send_type, role):
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    double = Double(library)
    pauses = Pauses(say)
    torch = modules(double, pauses)
    load(folder, "pynccl_wrapper", "device_communicators")
    p2p = load(folder, "p2p_nccl_engine", "kv_transfer.kv_connector.v1.p2p")
    engine = p2p.P2pNcclEngine(0, Config(port, send_type, role == "prefill"), "127.0.0.1", 0, library)
    say("ready")
    for line in lines():
        match json.loads(line):
            case ["send", tensor_id, shape, dtype, data, remote]:
                tensor = torch.Tensor(shape, getattr(torch, dtype), engine.device).set(base64.b64decode(data))
                say(engine.send_tensor(tensor_id, tensor, remote))
            case ["receive", tensor_id, remote]:
                tensor = engine.recv_tensor(tensor_id, remote)
                say(tensor and [tensor.shape, tensor.dtype.name, base64.b64encode(tensor.data()).decode()])
            case ["holds", tensor_id]:
                with engine.recv_store_cv:
                    say(engine.recv_store.get(tensor_id) is not None)
            case ["pause", place, count]:
                pauses.at(place, count)
                say(True)
            case ["misuse"]:
                say(double.misuse().decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
