// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Deadline;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;

/// Puts of one user of a Mooncake cluster, as many keys a call as staging memory holds.
///
/// Threading: any thread.
final class ClusterPuts {
    private final ClusterCalls calls;
    private volatile String noRoom = "";

    ClusterPuts(ClusterCalls calls) {
        this.calls = calls;
    }

    /// Why the last put that found no room did so; empty before.
    String noRoom() {
        return noRoom;
    }

    /// As [io.kvferry.backend.mooncake.store.Store#put].
    void put(StoreBatch batch, PutOptions options, int[] results) {
        int away = calls.away();
        if (away != 0 || !options.areValid()) {
            int code = away != 0 ? away : StoreCode.INVALID_PARAMS.number();
            Arrays.fill(results, 0, batch.size(), code);
            return;
        }
        var limit = Deadline.in(calls.client().config().moveLimit());
        for (int from = 0; from < batch.size(); ) {
            CallThread thread = calls.client().moves().take(limit);
            if (thread == null) {
                Arrays.fill(results, from, batch.size(), calls.noLane());
                return;
            }
            boolean mine = true;
            try {
                CallMemory memory = thread.memory().sealing(calls.sealed());
                MemorySegment config = memory.config(options);
                from = gather(memory, batch, from, results);
                if (memory.count() > 0) {
                    long answer =
                            calls.call(thread, limit, store -> putInto(store, memory, config));
                    mine = answer != CallThread.ABANDONED;
                    finishPut(memory, ClusterCalls.code(answer), mine, batch, results);
                }
            } finally {
                if (mine) {
                    calls.client().moves().give(thread);
                }
            }
        }
    }

    /// Fills a call with the values of keys from `from` on.
    ///
    /// @return the first key that is not in it
    private int gather(CallMemory memory, StoreBatch batch, int from, int[] results) {
        int next = from;
        for (; next < batch.size(); next++) {
            long bytes = batch.bytes(next);
            String key = batch.key(next);
            if (key.isEmpty() || bytes == 0 || ClusterCalls.isNoKey(key)) {
                results[next] = StoreCode.INVALID_PARAMS.number();
                continue;
            }
            int code = calls.add(memory, key, next, bytes);
            if (code == ClusterCalls.FULL) {
                return next;
            }
            results[next] = code;
            if (code == 0) {
                // Whatever happens to the call, no other answer is taken for this key's.
                results[next] = StoreCode.RPC_TIMEOUT.number();
                memory.gather(batch, next);
            }
        }
        return next;
    }

    private long putInto(MemorySegment store, CallMemory memory, MemorySegment config) {
        int code = memory.register(calls.client().library(), store);
        if (code != 0) {
            return code;
        }
        try {
            memory.presetInts(StoreCode.INTERNAL.number());
            long start = System.nanoTime();
            code = calls.client().library().batchPutFrom(store, memory, config);
            memory.looksForTransfers(code, false, Duration.ofNanos(System.nanoTime() - start));
            return code;
        } finally {
            memory.unregister(calls.client().library(), store);
        }
    }

    /// @param mine whether the results can be read: the call has returned
    private void finishPut(
            CallMemory memory, int code, boolean mine, StoreBatch batch, int[] results) {
        if (!mine) {
            return; // the keys have their code already
        }
        for (int i = 0; i < memory.count(); i++) {
            int position = memory.position(i);
            int result = code != 0 ? code : Math.min(0, memory.intResult(i));
            if (result == StoreCode.OBJECT_ALREADY_EXISTS.number()) {
                result = 0;
            }
            if (result == StoreCode.NO_AVAILABLE_HANDLE.number()) {
                noRoom =
                        "no room for "
                                + batch.bytes(position)
                                + " bytes in the Mooncake cluster at "
                                + calls.client().config().master();
            }
            results[position] = result;
        }
    }
}
