# SPDX-License-Identifier: Apache-2.0
"""Peers of P2pNcclConnector over pyzmq and msgpack, as vLLM's P2pNcclEngine and its proxy use them.

  peer.py proxy           a ROUTER where engines register; prints each registration as JSON
  peer.py engine ADDRESS OWN_ADDRESS   asks the control port at ADDRESS what vLLM's engine asks, prints the answers

Answers are lines that start with "@ ".
"""
import json
import sys

import msgpack
import zmq

LIMIT_MS = 30_000


def say(value):
    print("@ " + json.dumps(value), flush=True)


def proxy():
    router = zmq.Context().socket(zmq.ROUTER)
    router.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
    say(router.bind_to_random_port("tcp://127.0.0.1"))
    for _ in sys.stdin:  # one registration for each line
        identity, message = router.recv_multipart()  # exactly two frames
        say(msgpack.loads(message))


def engine(address, own):
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.setsockopt_string(zmq.IDENTITY, own)
    dealer.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.connect("tcp://" + address)
    dealer.send(msgpack.dumps({"cmd": "NEW", "unique_id": bytes(range(128))}))  # not answered
    for request in range(3):
        shape = [2, 7, 16, 8, 128]
        tensor_id = f"cmpl-___prefill_addr_a:1___decode_addr_b:2_{request:032x}-0#model.layers.0.self_attn.attn"
        dealer.send(msgpack.dumps({"cmd": "PUT", "tensor_id": tensor_id, "shape": shape, "dtype": "bfloat16"}))
        put = dealer.recv()
        dealer.send(msgpack.dumps({"cmd": "GET", "tensor_id": tensor_id}))
        say([put.decode(), msgpack.loads(dealer.recv())])


if sys.argv[1] == "proxy":
    proxy()
else:
    engine(sys.argv[2], sys.argv[3])
