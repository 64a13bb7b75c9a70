# SPDX-License-Identifier: Apache-2.0
"""Real Mooncake's store for the store benchmark, over TCP on loopback, beside a mooncake_master.

mooncake_store.py owner MASTER BYTES   has the memory; answers lines until its input ends
mooncake_store.py user MASTER BYTES    has no memory of the store, and a registered buffer of so many bytes

Lines of a user, each answered by one line that begins with "@":
  put SIZE COUNT BATCHES       removes the objects, puts COUNT of SIZE bytes, so often -> nanos cpuNanos
  get SIZE COUNT BATCHES       reads them back, and compares the bytes                 -> nanos cpuNanos
  fill KEYS                    objects of any 64 bytes                                 -> how many
  exists|describe|puts KEYS BATCH NANOS    asks for random ones of them; of puts the start and the end -> keys nanos
"""
import ctypes
import random
import sys
import time

from mooncake.store import MooncakeDistributedStore

SMALL = 64
LIBC = ctypes.CDLL(None)
NAME = "model@kvferry:0123456789abcdef@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@%032x"


def check(results, wanted, what):
    if any(result != wanted for result in results):
        raise SystemExit("%s: %s, not %s" % (what, sorted(set(results))[:4], wanted))


class User:
    def __init__(self, store, size):
        self.store = store
        self.half = size // 2
        self.memory = ctypes.create_string_buffer(size)
        self.base = ctypes.addressof(self.memory)
        for at in range(0, self.half, 1 << 20):
            ctypes.memset(self.base + at, 1 + (at >> 20) % 251, min(1 << 20, self.half - at))
        check([store.register_buffer(self.base, size)], 0, "register_buffer")
        self.number = 0

    def shape(self, size, count, first):
        keys = ["bandwidth-%d-%d" % (self.number, i) for i in range(count)]
        return keys, [self.base + first + i * size for i in range(count)], [size] * count

    def put(self, size, count, batches):
        nanos = cpu = 0
        for _ in range(batches):
            self.store.remove_all(True)
            self.number += 1
            keys, addresses, sizes = self.shape(size, count, 0)
            cpu -= time.process_time_ns()
            nanos -= time.monotonic_ns()
            results = self.store.batch_put_from(keys, addresses, sizes)
            nanos += time.monotonic_ns()
            cpu += time.process_time_ns()
            check(results, 0, "batch_put_from")
        return nanos, cpu

    def get(self, size, count, batches):
        nanos = cpu = 0
        for _ in range(batches):
            keys, addresses, sizes = self.shape(size, count, self.half)
            cpu -= time.process_time_ns()
            nanos -= time.monotonic_ns()
            results = self.store.batch_get_into(keys, addresses, sizes)
            nanos += time.monotonic_ns()
            cpu += time.process_time_ns()
            check(results, size, "batch_get_into")
        if LIBC.memcmp(ctypes.c_void_p(self.base), ctypes.c_void_p(self.base + self.half), ctypes.c_size_t(size * count)):
            raise SystemExit("wrong bytes came back")
        ctypes.memset(self.base + self.half, 0, size * count)
        return nanos, cpu

    def fill(self, count):
        for first in range(0, count, 1024):
            last = min(count, first + 1024)
            keys = [NAME % i for i in range(first, last)]
            check(self.store.batch_put_session_start(keys, [SMALL] * len(keys)), 0, "batch_put_session_start")
            check(self.store.batch_put_session_end(keys), 0, "batch_put_session_end")
        return (count,)

    def ask(self, call, count, batch, limit):
        done = nanos = 0
        chance = random.Random(time.monotonic_ns())
        while nanos < limit:
            first = chance.randrange(count - batch + 1)
            keys = [NAME % i for i in range(first, first + batch)]
            if call == "puts":
                self.number += 1
                keys = ["put-%d-%d-%d" % (chance.getrandbits(40), self.number, i) for i in range(batch)]
            begin = time.monotonic_ns()
            if call == "exists":
                results = self.store.batch_is_exist(keys) if batch > 1 else [self.store.is_exist(keys[0])]
                wanted = 1
            elif call == "describe":
                found = self.store.batch_get_replica_desc(keys)
                results, wanted = [len(found)], batch
            else:
                results = self.store.batch_put_session_start(keys, [SMALL] * batch)
                check(results, 0, "batch_put_session_start")
                results, wanted = self.store.batch_put_session_end(keys), 0
            nanos += time.monotonic_ns() - begin
            check(results, wanted, call)
            if call == "puts":
                self.store.batch_remove(keys, True)
            done += batch
        return done, nanos


def main():
    role, master, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = MooncakeDistributedStore()
    segment = size if role == "owner" else 0
    rc = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master)
    check([rc], 0, "setup")
    user = User(store, size) if role == "user" else None
    print("@ ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] in ("put", "get"):
            answer = getattr(user, words[0])(*map(int, words[1:]))
        elif words[0] == "fill":
            answer = user.fill(int(words[1]))
        else:
            answer = user.ask(words[0], *map(int, words[1:]))
        print("@", *answer, flush=True)
    store.close()


main()
