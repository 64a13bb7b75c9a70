// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Deadline;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.Consumer;

/// Reads of one user of a Mooncake cluster, as many keys a call as staging memory holds.
///
/// Threading: any thread.
final class ClusterGets {
    private final ClusterCalls calls;
    private final Consumer<String> damaged;

    /// @param damaged removes the object of a key
    ClusterGets(ClusterCalls calls, Consumer<String> damaged) {
        this.calls = calls;
        this.damaged = damaged;
    }

    /// As [io.kvferry.backend.mooncake.store.Store#get].
    void get(StoreBatch batch, long[] results) {
        int away = calls.away();
        if (away != 0) {
            Arrays.fill(results, 0, batch.size(), away);
            return;
        }
        var limit = Deadline.in(calls.client().config().moveLimit());
        for (int from = 0; from < batch.size(); ) {
            from = read(batch, from, batch.size(), results, limit);
        }
        for (int i = 0; calls.sealed() && i < batch.size(); i++) {
            if (results[i] == StoreCode.CHECKSUM_MISMATCH.number()) {
                readAgain(batch, i, results, limit);
            }
        }
    }

    /// Bytes that are not those of the object can come from a lease that ended during the copy. An
    /// object that is damaged itself would be found for ever and never be replaced, so it goes.
    private void readAgain(StoreBatch batch, int index, long[] results, Deadline limit) {
        read(batch, index, index + 1, results, limit);
        if (results[index] == StoreCode.CHECKSUM_MISMATCH.number()) {
            damaged.accept(batch.key(index));
        }
    }

    /// Reads keys of one call.
    ///
    /// @return the first key that was not in it
    private int read(StoreBatch batch, int from, int to, long[] results, Deadline limit) {
        CallThread thread = calls.client().moves().take(limit);
        if (thread == null) {
            Arrays.fill(results, from, to, calls.noLane());
            return to;
        }
        boolean mine = true;
        try {
            CallMemory memory = thread.memory().sealing(calls.sealed());
            int next = from;
            for (; next < to; next++) {
                String key = batch.key(next);
                int code =
                        ClusterCalls.isNoKey(key)
                                ? StoreCode.OBJECT_NOT_FOUND.number()
                                : calls.add(memory, key, next, batch.bytes(next));
                if (code == ClusterCalls.FULL) {
                    break;
                }
                results[next] = code == 0 ? StoreCode.RPC_TIMEOUT.number() : code;
            }
            if (memory.count() > 0) {
                long answer = calls.call(thread, limit, store -> getInto(store, memory));
                mine = answer != CallThread.ABANDONED;
                if (mine) {
                    finishGet(memory, ClusterCalls.code(answer), batch, results);
                }
            }
            return next;
        } finally {
            if (mine) {
                calls.client().moves().give(thread);
            }
        }
    }

    private long getInto(MemorySegment store, CallMemory memory) {
        int code = memory.register(calls.client().library(), store);
        if (code != 0) {
            return code;
        }
        try {
            memory.presetLongs(StoreCode.INTERNAL.number());
            long start = System.nanoTime();
            code = calls.client().library().batchGetInto(store, memory);
            memory.looksForTransfers(code, true, Duration.ofNanos(System.nanoTime() - start));
            return code;
        } finally {
            memory.unregister(calls.client().library(), store);
        }
    }

    private static void finishGet(CallMemory memory, int code, StoreBatch batch, long[] results) {
        for (int i = 0; i < memory.count(); i++) {
            long result = code != 0 ? code : memory.longResult(i);
            if (result >= 0) {
                long bytes = memory.scatter(batch, i, result);
                result = bytes < 0 ? StoreCode.CHECKSUM_MISMATCH.number() : bytes;
            }
            results[memory.position(i)] = result;
        }
    }
}
