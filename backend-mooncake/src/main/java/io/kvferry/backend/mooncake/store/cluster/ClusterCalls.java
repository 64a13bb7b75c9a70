// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Deadline;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.ToLongFunction;

/// Calls of the library for one user of a Mooncake cluster, until it is closed.
///
/// Threading: any thread.
final class ClusterCalls {
    /// Another call has room.
    static final int FULL = 1;

    private final ClusterClient client;
    private final String prefix;
    private final boolean sealed;
    private final AtomicBoolean closed = new AtomicBoolean();

    /// @param prefix of all keys of this user
    /// @param sealed whether values carry a [ValueTrailer]
    ClusterCalls(ClusterClient client, String prefix, boolean sealed) {
        this.client = client;
        this.prefix = prefix;
        this.sealed = sealed;
    }

    ClusterClient client() {
        return client;
    }

    boolean sealed() {
        return sealed;
    }

    /// 0 when calls can be made.
    int away() {
        if (closed.get()) {
            return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
        }
        return client.store().address() == 0 ? StoreCode.RPC_FAIL.number() : 0;
    }

    /// The code of keys for which there was no thread in time.
    int noLane() {
        int away = away();
        return away != 0 ? away : StoreCode.RPC_TIMEOUT.number();
    }

    /// A call of the library, for who has the thread.
    long call(CallThread thread, Deadline limit, ToLongFunction<MemorySegment> call) {
        MemorySegment store = client.store();
        if (store.address() == 0) {
            return away();
        }
        return thread.run(() -> call.applyAsLong(store), limit);
    }

    /// A code for what [CallThread#run] answered.
    static int code(long answer) {
        return answer == CallThread.ABANDONED ? StoreCode.RPC_TIMEOUT.number() : (int) answer;
    }

    static boolean isNoKey(String key) {
        return key.indexOf('\0') >= 0; // where C takes the string to end
    }

    /// Adds a key and room for its value to a call.
    ///
    /// @return 0, [#FULL] where another call has room, or a code.
    int add(CallMemory memory, String key, int position, long bytes) {
        try {
            if (memory.add(prefix + key, position, bytes)) {
                return 0;
            }
        } catch (OutOfMemoryError _) {
            return StoreCode.BUFFER_OVERFLOW.number();
        }
        return memory.count() > 0 ? FULL : StoreCode.INVALID_PARAMS.number();
    }

    /// No more calls. Idempotent.
    void close() {
        if (closed.compareAndSet(false, true)) {
            client.release();
        }
    }
}
