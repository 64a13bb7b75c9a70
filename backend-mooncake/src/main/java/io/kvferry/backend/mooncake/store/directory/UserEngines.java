// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.UserEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// The ends of transfers of one user, one for each address of this host by which owners reach it;
/// most often that is one. Each knows all memory that the user has registered.
///
/// Threading: any thread.
final class UserEngines implements AutoCloseable {
    private final Map<String, UserEngine> byHost = new LinkedHashMap<>();
    private final List<MemorySegment> registered = new ArrayList<>();
    private boolean closed;

    /// The one that an owner reaches.
    ///
    /// @throws KvFerryException [ErrorCode#CLOSED] after [#close], and as of
    ///   [RemoteStoreConfig#ownHost]
    UserEngine of(RemoteStoreConfig owner) {
        return of(owner, owner.ownHost()); // unlocked: DNS may be slow
    }

    private synchronized UserEngine of(RemoteStoreConfig owner, String host) {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "the user of the store has been closed");
        }
        return byHost.computeIfAbsent(
                host,
                _ -> {
                    UserEngine engine = UserEngine.start(owner);
                    registered.forEach(engine::register);
                    return engine;
                });
    }

    /// @return as [io.kvferry.backend.mooncake.store.Store#register]; UNAVAILABLE_IN_CURRENT_STATUS
    ///   after [#close]
    synchronized int register(MemorySegment memory) {
        if (closed) {
            return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
        }
        if (!memory.isNative()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        registered.add(memory);
        byHost.values().forEach(engine -> engine.register(memory));
        return 0;
    }

    /// @return as [io.kvferry.backend.mooncake.store.Store#unregister]
    synchronized int unregister(MemorySegment memory) {
        for (int i = 0; i < registered.size(); i++) {
            if (registered.get(i).address() == memory.address()) {
                registered.remove(i);
                byHost.values().forEach(engine -> engine.unregister(memory));
                return 0;
            }
        }
        return StoreCode.INVALID_PARAMS.number();
    }

    @Override
    public synchronized void close() {
        closed = true;
        byHost.values().forEach(UserEngine::close);
        byHost.clear();
        registered.clear();
    }
}
