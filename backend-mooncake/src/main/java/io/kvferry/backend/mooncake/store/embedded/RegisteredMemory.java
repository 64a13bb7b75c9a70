// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.TreeMap;

/// The memory that a user of a store has registered, counted by base address. The embedded store
/// needs no registration; others do, so memory without one is warned of.
///
/// Threading: any thread.
final class RegisteredMemory {
    private static final Logger LOG = LoggerFactory.getLogger(RegisteredMemory.class);

    private record Range(long bytes, int count) {}

    private volatile TreeMap<Long, Range> ranges = new TreeMap<>();
    private volatile boolean warned;

    synchronized int add(MemorySegment memory) {
        if (!memory.isNative()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        var more = new TreeMap<>(ranges);
        more.merge(
                memory.address(),
                new Range(memory.byteSize(), 1),
                (old, now) -> new Range(Math.max(old.bytes, now.bytes), old.count + 1));
        ranges = more;
        return 0;
    }

    synchronized int remove(MemorySegment memory) {
        var fewer = new TreeMap<>(ranges);
        Range known = fewer.remove(memory.address());
        if (known == null) {
            return StoreCode.INVALID_PARAMS.number();
        }
        if (known.count > 1) {
            fewer.put(memory.address(), new Range(known.bytes, known.count - 1));
        }
        ranges = fewer;
        return 0;
    }

    /// Warns once when the first buffer of a batch is not registered.
    void check(StoreBatch batch) {
        if (warned || batch.size() == 0 || batch.end(0) == batch.first(0)) {
            return;
        }
        int first = batch.first(0);
        long address = batch.memory(first).address() + batch.offset(first);
        Map.Entry<Long, Range> below = ranges.floorEntry(address);
        if (below == null
                || address + batch.length(first) > below.getKey() + below.getValue().bytes()) {
            warned = true;
            LOG.warn(
                    "memory at {} is moved without having been registered; a store that works by"
                            + " RDMA would refuse it",
                    Long.toHexString(address));
        }
    }
}
