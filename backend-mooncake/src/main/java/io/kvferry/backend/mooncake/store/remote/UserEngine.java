// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;

import java.lang.foreign.MemorySegment;

/// A user's end of transfers: an engine, and the memory that it reaches. Users of several owners
/// share one.
///
/// Threading: any thread.
public final class UserEngine implements AutoCloseable {
    private final TransferEngine engine;
    private final UserMemory memory;

    private UserEngine(TransferEngine engine) {
        this.engine = engine;
        this.memory = new UserMemory(engine);
    }

    /// Starts one that the owner of `config` reaches.
    public static UserEngine start(RemoteStoreConfig config) {
        return new UserEngine(JavaTransferEngine.start(config.engine()));
    }

    TransferEngine engine() {
        return engine;
    }

    UserMemory memory() {
        return memory;
    }

    /// As [io.kvferry.backend.mooncake.store.Store#register].
    public int register(MemorySegment segment) {
        return memory.add(segment);
    }

    /// As [io.kvferry.backend.mooncake.store.Store#unregister].
    public int unregister(MemorySegment segment) {
        return memory.remove(segment);
    }

    @Override
    public void close() {
        memory.close();
        engine.close();
    }
}
