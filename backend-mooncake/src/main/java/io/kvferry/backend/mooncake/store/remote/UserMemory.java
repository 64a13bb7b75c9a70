// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.TreeMap;

/// The memory that a user has registered, counted by base address, and what of it the transfer
/// engine can reach. Ranges that overlap another one are not registered a second time.
///
/// Threading: any thread; readers see a snapshot.
final class UserMemory implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(UserMemory.class);

    private final TransferEngine engine;
    private volatile TreeMap<Long, Range> ranges = new TreeMap<>();
    private volatile boolean warned;

    /// @param registered null where the engine did not take it
    private record Range(long bytes, int count, @Nullable RegisteredMemory registered) {}

    UserMemory(TransferEngine engine) {
        this.engine = engine;
    }

    synchronized int add(MemorySegment memory) {
        if (!memory.isNative()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        var more = new TreeMap<>(ranges);
        Range known = more.get(memory.address());
        if (known != null && known.bytes >= memory.byteSize()) {
            more.put(memory.address(), new Range(known.bytes, known.count + 1, known.registered));
        } else {
            int count = known == null ? 1 : known.count + 1;
            if (known != null && known.registered != null) {
                known.registered.close(); // a longer one begins at the same address
            }
            more.put(memory.address(), new Range(memory.byteSize(), count, registered(memory)));
        }
        ranges = more;
        return 0;
    }

    private @Nullable RegisteredMemory registered(MemorySegment memory) {
        try {
            return engine.register(memory, Access.GRANTED);
        } catch (KvFerryException e) {
            LOG.debug("memory is moved through a copy: {}", e.toString());
            return null;
        }
    }

    synchronized int remove(MemorySegment memory) {
        var fewer = new TreeMap<>(ranges);
        Range known = fewer.remove(memory.address());
        if (known == null) {
            return StoreCode.INVALID_PARAMS.number();
        }
        if (known.count > 1) {
            fewer.put(memory.address(), new Range(known.bytes, known.count - 1, known.registered));
        }
        ranges = fewer;
        if (known.count == 1 && known.registered != null) {
            known.registered.close();
        }
        return 0;
    }

    /// Whether the engine reaches all pieces of a key.
    boolean covers(StoreBatch batch, int index) {
        for (int b = batch.first(index); b < batch.end(index); b++) {
            if (!covers(batch.memory(b).address() + batch.offset(b), batch.length(b))) {
                warnOnce();
                return false;
            }
        }
        return true;
    }

    private boolean covers(long address, long length) {
        Map.Entry<Long, Range> below = ranges.floorEntry(address);
        return below != null
                && below.getValue().registered != null
                && address + length <= below.getKey() + below.getValue().bytes;
    }

    private void warnOnce() {
        if (!warned) {
            warned = true;
            LOG.warn(
                    "memory is moved that has not been registered with the store: it goes through"
                            + " a copy");
        }
    }

    @Override
    public synchronized void close() {
        for (Range range : ranges.values()) {
            if (range.registered != null) {
                range.registered.close();
            }
        }
        ranges = new TreeMap<>();
    }
}
