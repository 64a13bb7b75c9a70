# SPDX-License-Identifier: Apache-2.0
"""A peer of MooncakeConnector over a real Mooncake engine, pyzmq and msgspec, driven by lines on standard input.

  peer.py codec                       re-encodes messages, see `codec`
  peer.py prefill LAYERS BLOCKS HEADS HEAD_BYTES [GENERATION [TP_SIZE TP_RANK]]    a prefiller with a bootstrap service
  of its own, which lists it as the only rank
  peer.py decode  LAYERS BLOCKS HEADS HEAD_BYTES [GENERATION [TP_SIZE TP_RANK]]    a decoder; HEADS are those of all ranks

Answers are lines that start with "@ ". The bytes of a block follow from (seed, layer, position, head), as in the
test engine of backend-mooncake.
"""
import json
import random
import sys
import threading
import urllib.request
from enum import IntEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

HOST = "127.0.0.1"


class G2(msgspec.Struct, omit_defaults=True):
    remote_hostname: str
    remote_port: int
    remote_tp_size: int
    remote_tp_rank: int
    req_blocks: dict[str, tuple[str, list[int]]]
    kv_caches_base_addr: list[int]


class G3(G2, omit_defaults=True):
    block_lens: list[int]


class G3B(msgspec.Struct, omit_defaults=True):
    remote_hostname: str
    remote_port: int
    remote_tp_size: int
    remote_tp_rank: int
    req_blocks: dict[str, tuple[str, list[list[int]]]]
    kv_caches_base_addr: list[int]
    block_lens: list[int]


class G4(G3B, omit_defaults=True):
    registered_layer_names: list[str] = msgspec.field(default_factory=list)
    registered_layer_indices: list[int] = msgspec.field(default_factory=list)


class G5(G3B, omit_defaults=True):
    kv_block_lens: list[int]
    registered_layer_names: list[str] = msgspec.field(default_factory=list)
    registered_layer_indices: list[int] = msgspec.field(default_factory=list)
    registered_group_indices: list[int] = msgspec.field(default_factory=list)


class G6(G5, omit_defaults=True):
    remote_pp_size: int = 1


class G7(G5, omit_defaults=True):
    registered_shared_group_ids: list[list[int]] = msgspec.field(default_factory=list)
    registered_row_offsets: list[int] = msgspec.field(default_factory=list)
    remote_pp_size: int = 1
    layout_id: int = 0


GENERATIONS = {kind.__name__: kind for kind in (G2, G3, G3B, G4, G5, G6, G7)}


class Status(IntEnum):
    FINISH = 0
    CONTINUE = 1
    ERROR = 2
    LAYOUT_MISS = 3


class Response(msgspec.Struct, omit_defaults=True):
    status: Status
    ok_reqs: list[str] | None = None
    err_reqs: list[str] | None = None
    err_msg: str | None = None
    layout_id: int = 0


def say(*words):
    print("@", *words, flush=True)


def codec():
    """`request-GENERATION HEX` or `response HEX`: decodes strictly, answers the fields as JSON and the message encoded
    anew."""
    kinds = {"response": Response, **{"request-" + name: kind for name, kind in GENERATIONS.items()}}
    for line in sys.stdin:
        kind, text = line.split()
        try:
            value = msgspec.msgpack.decode(bytes.fromhex(text), type=kinds[kind])
            say(msgspec.msgpack.encode(value).hex(), json.dumps(msgspec.to_builtins(value), separators=(",", ":")))
        except (msgspec.DecodeError, UnicodeError) as error:
            say("refused", error)


class Cache:
    """KV memory of one rank in a real engine."""

    def __init__(self, layers, blocks, all_heads, head_bytes, tp_size=1, tp_rank=0):
        import numpy as np
        from mooncake.engine import TransferEngine

        self.np, self.layers, self.blocks = np, layers, blocks
        self.all_heads, self.tp_size, self.tp_rank = all_heads, tp_size, tp_rank
        self.first_head, heads = self.heads_of(tp_rank, tp_size)
        self.heads, self.head_bytes, self.block_bytes = heads, head_bytes, heads * head_bytes
        self.memory = np.zeros(layers * blocks * self.block_bytes, dtype=np.uint8)
        self.base = self.memory.ctypes.data
        self.engine = TransferEngine()
        if self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") != 0:
            sys.exit("initialize failed")
        if self.engine.register_memory(self.base, self.memory.size) != 0:
            sys.exit("register_memory failed")
        self.port = self.engine.get_rpc_port()

    def heads_of(self, tp_rank, tp_size):
        """First head of a rank, and how many it has."""
        each = self.all_heads // tp_size
        return tp_rank * each, each

    def address(self, layer):
        return self.base + layer * self.blocks * self.block_bytes

    def block(self, layer, block):
        at = (layer * self.blocks + block) * self.block_bytes
        return self.memory[at : at + self.block_bytes]

    def pattern(self, seed, layer, position):
        np = self.np
        head, byte = np.divmod(np.arange(self.block_bytes), self.head_bytes)
        head += self.first_head
        return ((seed * 31 + layer * 7 + position * 13 + head * 101 + byte * 3) | 1).astype(np.uint8)

    def fill(self, seed, first, count):
        for layer in range(self.layers):
            for position in range(count):
                self.block(layer, first + position)[:] = self.pattern(seed, layer, position)

    def wrong(self, seed, first, count):
        for layer in range(self.layers):
            for position in range(count):
                if not (self.block(layer, first + position) == self.pattern(seed, layer, position)).all():
                    return "layer %d block %d" % (layer, first + position)
        return None

    def names(self):
        return ["model.layers.%d.self_attn.attn" % layer for layer in range(self.layers)]


class Bootstrap(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    workers = {}

    def do_GET(self):
        body = json.dumps(Bootstrap.workers).encode()
        self.send_response(200 if self.path == "/query" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Prefiller:
    """Of generation G5 and later as 0.33.0; before, as vLLM was then: K and V of a block are halves for it, which it
    writes apart, and decoders that name no layers are taken by position."""

    def __init__(self, cache, generation="G7"):
        import zmq

        self.zmq, self.cache, self.generation = zmq, cache, generation
        self.ready, self.layouts, self.condition = {}, {}, threading.Condition()
        self.writes = {"short": 0, "full": 0}
        self.router = zmq.Context().socket(zmq.ROUTER)
        port = self.router.bind_to_random_port("tcp://" + HOST)
        http = ThreadingHTTPServer((HOST, 0), Bootstrap)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.address = "tcp://%s:%d" % (HOST, port)
        address = {"0": {"0": self.address}}
        Bootstrap.workers = {"0": {"engine_id": "python-p", "worker_addr": address}}
        threading.Thread(target=self.listen, daemon=True).start()
        say("READY", "http://%s:%d" % (HOST, http.server_port))

    def listen(self):
        while True:
            frames = self.router.recv_multipart()
            assert len(frames) == 2, "the frame count that ends vLLM's listener"
            self.answer(frames[0], frames[1])

    def reply(self, identity, response):
        self.router.send_multipart([identity, msgspec.msgpack.encode(response)])

    def answer(self, identity, payload):
        try:
            request = msgspec.msgpack.decode(payload, type=GENERATIONS[self.generation])
        except msgspec.ValidationError as error:
            self.reply(identity, Response(Status.ERROR, err_msg=str(error)))
            return
        layout_id = getattr(request, "layout_id", 0)
        key = (request.remote_hostname, request.remote_port, request.remote_tp_rank, layout_id)
        if request.kv_caches_base_addr or not layout_id:
            self.writes["full"] += 1
            problem = self.problem(request)
            if problem:
                self.reply(identity, Response(Status.ERROR, err_msg=problem))
                return
            strides = getattr(request, "block_lens", [self.cache.block_bytes] * self.cache.layers)
            layout = (request.kv_caches_base_addr, strides)
            if layout_id:
                self.layouts[key] = layout
        elif key in self.layouts:
            self.writes["short"] += 1
            layout = self.layouts[key]
        else:
            self.reply(identity, Response(Status.LAYOUT_MISS, err_msg="not cached"))
            return
        left = dict(request.req_blocks)
        for name, (transfer, groups) in request.req_blocks.items():
            with self.condition:
                self.condition.wait_for(lambda: transfer in self.ready, 20)
                first, count = self.ready.get(transfer, (0, 0))
            del left[name]
            if groups and isinstance(groups[0], int):
                groups = [groups]
            result = self.write(request, layout, groups, first, count) if count else "never ready"
            response = Response(Status.CONTINUE if left else Status.FINISH, layout_id=layout_id)
            if result:
                response.err_reqs, response.err_msg = [name], result
            else:
                response.ok_reqs = [name]
            self.reply(identity, response)

    def problem(self, request):
        cache = self.cache
        if len(request.kv_caches_base_addr) != cache.layers:
            return "%d regions" % len(request.kv_caches_base_addr)
        _, heads = cache.heads_of(request.remote_tp_rank, request.remote_tp_size)
        if any(length != heads * cache.head_bytes for length in getattr(request, "block_lens", [])):
            return "block lengths %s" % request.block_lens
        names = getattr(request, "registered_layer_names", cache.names())
        indices = getattr(request, "registered_layer_indices", list(range(cache.layers)))
        if names != cache.names() or indices != list(range(cache.layers)):
            return "layers %s" % names
        return None

    def write(self, request, layout, groups, first, count):
        if not groups or not groups[0]:
            return None
        mine = list(range(first, first + count))[-len(groups[0]) :]
        source, target, length = [], [], []
        parts = self.parts(request)
        for layer, (base, stride) in enumerate(zip(*layout)):
            for here_offset, there_offset, part_bytes in parts:
                for here, there in zip(mine, groups[0]):
                    source.append(self.cache.address(layer) + here * self.cache.block_bytes + here_offset)
                    target.append(base + there * stride + there_offset)
                    length.append(part_bytes)
        peer = "%s:%d" % (request.remote_hostname, request.remote_port)
        code = self.cache.engine.batch_transfer_sync_write(peer, source, target, length)
        return None if code == 0 else "Mooncake transfer engine returned %d" % code

    def parts(self, request):
        """What is written of a block: its offset here, there, and its length."""
        cache = self.cache
        if self.generation < "G5":
            half = cache.block_bytes // 2
            return [(0, 0, half), (half, half, half)]
        first, count = cache.heads_of(request.remote_tp_rank, request.remote_tp_size)
        low, high = max(first, cache.first_head), min(first + count, cache.first_head + cache.heads)
        size = cache.head_bytes
        return [((low - cache.first_head) * size, (low - first) * size, (high - low) * size)] if low < high else []

    def command(self, word):
        if word[0] == "address":
            return self.address
        if word[0] == "send":  # TRANSFER SEED FIRST COUNT
            self.cache.fill(int(word[2]), int(word[3]), int(word[4]))
            with self.condition:
                self.ready[word[1]] = (int(word[3]), int(word[4]))
                self.condition.notify_all()
            return "ok"
        if word[0] == "forget":
            self.layouts.clear()
            return "ok"
        if word[0] == "forms":
            return "%(full)d full %(short)d short" % self.writes
        return "unknown"


class Decoder:
    def __init__(self, cache):
        import zmq

        self.zmq, self.cache, self.context = zmq, cache, zmq.Context()
        self.layout_id = random.getrandbits(63) | 1
        say("READY", cache.port)

    def command(self, word):
        if word[0] == "check":  # SEED FIRST COUNT
            return self.cache.wrong(int(word[1]), int(word[2]), int(word[3])) or "same"
        if word[0] == "pull":  # BOOTSTRAP ENGINE TRANSFER FIRST COUNT FORM
            with urllib.request.urlopen(word[1] + "/query", timeout=10) as answer:
                engines = json.load(answer)
            workers = next(e["worker_addr"] for e in engines.values() if e["engine_id"] == word[2])
            for tp_rank in self.partners(len(workers)):
                told = self.pull(workers[str(tp_rank)]["0"], word[3], int(word[4]), int(word[5]), word[6])
                if not told.startswith("FINISH"):
                    break
            return told
        if word[0] == "frames":  # ADDRESS NUMBER: a message that ends vLLM's own listener
            socket = self.context.socket(self.zmq.DEALER)
            socket.linger = 1000
            socket.connect(word[1])
            socket.send_multipart([b"x"] * int(word[2]))
            socket.close()
            return "ok"
        return "unknown"

    def partners(self, prefill_tp):
        """The prefiller's ranks that hold heads of this one."""
        cache = self.cache
        if cache.tp_size >= prefill_tp:
            return [cache.tp_rank // (cache.tp_size // prefill_tp)]
        ratio = prefill_tp // cache.tp_size
        return range(cache.tp_rank * ratio, (cache.tp_rank + 1) * ratio)

    def pull(self, address, transfer, first, count, form):
        cache = self.cache
        blocks = [list(range(first, first + count))] if count else []
        if form in ("G2", "G3"):
            blocks = blocks[0] if blocks else []
        fields = {
            "remote_hostname": HOST,
            "remote_port": cache.port,
            "remote_tp_size": cache.tp_size,
            "remote_tp_rank": cache.tp_rank,
            "req_blocks": {"python-d-" + transfer: (transfer, blocks)},
            "layout_id": self.layout_id,
            "kv_caches_base_addr": [],
            "block_lens": [],
            "kv_block_lens": [],
        }
        if form != "short":
            fields.update(
                kv_caches_base_addr=[cache.address(layer) for layer in range(cache.layers)],
                block_lens=[cache.block_bytes] * cache.layers,
                kv_block_lens=[cache.block_bytes] * cache.layers,
                registered_layer_names=cache.names(),
                registered_layer_indices=list(range(cache.layers)),
                registered_group_indices=[0] * cache.layers,
                registered_shared_group_ids=[[0]] * cache.layers,
                registered_row_offsets=[-1] * cache.layers,
            )
        kind = GENERATIONS["G7" if form == "short" else form]
        request = kind(**{name: value for name, value in fields.items() if name in kind.__struct_fields__})
        socket = self.context.socket(self.zmq.DEALER)
        socket.linger, socket.rcvtimeo = 0, 20000
        socket.connect(address)
        socket.send(msgspec.msgpack.encode(request))
        try:
            while True:
                response = msgspec.msgpack.decode(socket.recv(), type=Response)
                if response.status != Status.CONTINUE:
                    told = response.ok_reqs or response.err_reqs or ["-"]
                    return "%s %s %d %s" % (
                        response.status.name, told[0], response.layout_id == self.layout_id, response.err_msg)
        except self.zmq.Again:
            return "no answer"
        finally:
            socket.close()


def main():
    if sys.argv[1] == "codec":
        codec()
        return
    cache = Cache(*(int(number) for number in sys.argv[2:6] + sys.argv[7:9]))
    role = Prefiller(cache, *sys.argv[6:7]) if sys.argv[1] == "prefill" else Decoder(cache)
    for line in sys.stdin:
        try:
            say(role.command(line.split()))
        except Exception as error:  # the test reads it
            say("failed", repr(error))


main()
