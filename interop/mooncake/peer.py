# SPDX-License-Identifier: Apache-2.0
"""A real Mooncake transfer engine, driven by lines on standard input.

Started as `peer.py <metadata> <name> <bytes>`; prints `READY <segment> <address>`, then one line per command:

  fill <seed>                                  byte i becomes (i * 7 + seed) mod 256
  zero
  crc <offset> <length>                        CRC32 of a part of the buffer
  write|read <segment> <local> <remote> <length> <count>   `count` ranges of `length` bytes, one batch; the result
  notify <segment> <local> <remote> <length> <name> <message>  a write with a notification
  notifies                                     the received notifications
"""
import sys
import zlib

import numpy as np
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode


def main():
    metadata, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    engine = TransferEngine()
    if engine.initialize(name, metadata, "tcp", "") != 0:
        sys.exit("initialize failed")
    segment = "%s:%d" % (name, engine.get_rpc_port()) if metadata == "P2PHANDSHAKE" else name
    buffer = np.zeros(size, dtype=np.uint8)
    base = buffer.ctypes.data
    if engine.register_memory(base, size) != 0:
        sys.exit("register_memory failed")
    say("READY", segment, base)
    for line in sys.stdin:
        word = line.split()
        if word[0] == "fill":
            buffer[:] = (np.arange(size, dtype=np.uint64) * 7 + int(word[1])).astype(np.uint8)
            say("ok")
        elif word[0] == "zero":
            buffer[:] = 0
            say("ok")
        elif word[0] == "crc":
            at, length = int(word[1]), int(word[2])
            say(zlib.crc32(buffer[at : at + length]))
        elif word[0] in ("write", "read"):
            local, remote, length, count = (int(text) for text in word[2:6])
            call = engine.batch_transfer_sync_write if word[0] == "write" else engine.batch_transfer_sync_read
            say(call(
                word[1],
                [base + local + i * length for i in range(count)],
                [remote + i * length for i in range(count)],
                [length] * count,
            ))
        elif word[0] == "notify":
            local, remote, length = (int(text) for text in word[2:5])
            notification = TransferNotify(word[5], word[6])
            say(engine.transfer_sync(word[1], base + local, remote, length, TransferOpcode.Write, notification))
        elif word[0] == "notifies":
            say(" ".join("%s=%s" % (each.name, each.msg) for each in engine.get_notifies()) or "none")
        else:
            say("unknown")


def say(*words):
    print("@", *words, flush=True)


main()
