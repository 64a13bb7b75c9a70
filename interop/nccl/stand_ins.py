# SPDX-License-Identifier: Apache-2.0
"""What vLLM's p2p_nccl_engine.py imports of torch and of vLLM, over the C double of NCCL and of a GPU's driver.

A tensor is memory of the double's device; a stream is one of its streams. pynccl_wrapper.py and p2p_nccl_engine.py
themselves are vLLM's own.
"""
import contextlib
import ctypes
import importlib.util
import logging
import math
import os
import sys
import time
import types

ACROSS = 11  # a knob of the double: the ranks of a communicator are in two processes


class Double:
    """The functions of the double that stand for the driver."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_long
        for name, result, arguments in [
            ("set", None, [ctypes.c_int, size]),
            ("misuse", ctypes.c_char_p, []),
            ("allocate", pointer, [size]),
            ("free", None, [pointer]),
            ("stream", pointer, []),
            ("mark", None, [pointer]),
            ("reached", ctypes.c_int, [pointer]),
        ]:
            function = getattr(library, "double_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.set(ACROSS, 1)


class Pauses:
    """Stops a thread for ever where it comes to a place, so that the process can be killed there."""

    def __init__(self, said):
        self.said = said
        self.left = {}

    def at(self, place, count):
        self.left[place] = count

    def come(self, place):
        if place not in self.left:
            return
        self.left[place] -= 1
        if self.left[place] == 0:
            self.said("paused")
            while True:
                time.sleep(3600)


class Size(tuple):
    """torch.Size is a tuple, too: msgpack packs it as an array."""


class DType:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __str__(self):
        return "torch." + self.name


def modules(double, pauses):
    """Puts the stand-ins where `import` finds them; returns that of torch."""
    torch = types.ModuleType("torch")
    for name, itemsize in {
        "int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8, "bfloat16": 2,
    }.items():
        setattr(torch, name, DType(name, itemsize))

    class Device:
        def __init__(self, name):
            self.name, self.index = name, int(name.split(":")[1])

        def __eq__(self, other):
            return self.name == other.name

    class Tensor:
        def __init__(self, shape, dtype, device):
            self.shape, self.dtype, self.device = Size(shape), dtype, device
            self.bytes = math.prod(shape) * dtype.itemsize
            self.address = double.allocate(self.bytes)

        def __del__(self):
            double.free(self.address)

        def numel(self):
            return math.prod(self.shape)

        def element_size(self):
            return self.dtype.itemsize

        def data_ptr(self):
            return self.address

        def to(self, device):
            pauses.come("send")  # P2pNcclEngine calls it right before ncclSend
            return self

        def set(self, data):
            assert len(data) == self.bytes
            ctypes.memmove(self.address, data, self.bytes)
            return self

        def data(self):
            return ctypes.string_at(self.address, self.bytes)

    def empty(shape, dtype, device):
        pauses.come("receive")  # and this right before it answers a PUT, or before ncclRecv
        return Tensor(shape, dtype, device)

    class Stream:
        def __init__(self):
            self.cuda_stream = double.stream()

        def synchronize(self):
            double.mark(self.cuda_stream)
            while not double.reached(self.cuda_stream):
                time.sleep(0.0001)

    torch.device, torch.Tensor, torch.empty, torch.dtype = Device, Tensor, empty, DType
    torch.cuda = types.ModuleType("torch.cuda")
    torch.cuda.Stream = Stream
    torch.cuda.stream = torch.cuda.device = lambda _: contextlib.nullcontext()
    torch.cuda.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.ReduceOp = object

    class TensorMemoryPool:
        """Not reached: the budget of the tests is never used up."""

        def __init__(self, max_block_size):
            pass

    sys.modules.update({"torch": torch, "torch.cuda": torch.cuda, "torch.distributed": torch.distributed})
    for name, content in {
        "vllm": {},
        "vllm.config": {},
        "vllm.config.kv_transfer": {"KVTransferConfig": object},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.utils": {
            "find_nccl_library": lambda: None, "current_stream": lambda: None, "get_ip": lambda: "127.0.0.1",
        },
        "vllm.distributed": {},
        "vllm.distributed.device_communicators": {},
        "vllm.distributed.kv_transfer": {},
        "vllm.distributed.kv_transfer.kv_connector": {},
        "vllm.distributed.kv_transfer.kv_connector.v1": {},
        "vllm.distributed.kv_transfer.kv_connector.v1.p2p": {},
        "vllm.distributed.kv_transfer.kv_connector.v1.p2p.tensor_memory_pool": {"TensorMemoryPool": TensorMemoryPool},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
    return torch


def load(folder, name, package):
    """Imports a file of vLLM's under the name that vLLM gives it."""
    full = f"vllm.distributed.{package}.{name}"
    specification = importlib.util.spec_from_file_location(full, os.path.join(folder, name + ".py"))
    module = importlib.util.module_from_spec(specification)
    sys.modules[full] = module
    specification.loader.exec_module(module)
    return module


class Config:
    """As much of vLLM's KVTransferConfig as the engine reads."""

    kv_buffer_size = 1e9

    def __init__(self, port, send_type, produces):
        self.kv_port = port
        self.is_kv_producer = produces
        self.kv_connector_extra_config = {"http_port": 8000, "send_type": send_type, "mem_pool_size_gb": 0}

    def get_from_extra_config(self, key, default):
        return self.kv_connector_extra_config.get(key, default)
