// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// The stores of this JVM by name. A store is opened by the first half that wants it and outlives
/// the last one for a while, so that an engine that starts anew finds its blocks.
///
/// Threading: any thread.
public final class EmbeddedStores {
    private static final Logger LOG = LoggerFactory.getLogger(EmbeddedStores.class);
    private static final Map<String, Shared> STORES = new HashMap<>();

    private EmbeddedStores() {}

    private static final class Shared {
        final EmbeddedStore store;
        final long bytes;
        int users;

        /// Differs for every time that the store is left by its last user.
        long departure;

        Shared(EmbeddedStore store, long bytes) {
            this.store = store;
            this.bytes = bytes;
        }
    }

    /// The right to use a store.
    public interface Use extends AutoCloseable {
        EmbeddedStore store();

        /// Ends it; idempotent.
        @Override
        void close();
    }

    /// Segment, size and configuration are those of who opens it first; another size or
    /// configuration later is warned of.
    ///
    /// @param linger how long the store stays when nobody uses it any more
    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY] when there is
    ///   no memory for it
    public static Use use(
            String name, String segment, long bytes, StoreConfig config, Duration linger) {
        synchronized (STORES) {
            Shared shared = STORES.get(name);
            if (shared == null) {
                shared = new Shared(open(segment, bytes, config), bytes);
                STORES.put(name, shared);
                LOG.info("store {}: {} bytes in segment {}", name, bytes, segment);
            } else if (shared.bytes != bytes) {
                LOG.warn(
                        "store {} has {} bytes already; the {} that are wanted now are of no effect",
                        name,
                        shared.bytes,
                        bytes);
            }
            if (!shared.store.config.equals(config)) {
                LOG.warn(
                        "store {} keeps the leases, eviction and checksums of who opened it; the"
                                + " other ones that are wanted now are of no effect",
                        name);
            }
            shared.users++;
            return new OneUse(name, shared, linger);
        }
    }

    private static EmbeddedStore open(String segment, long bytes, StoreConfig config) {
        EmbeddedStore store = EmbeddedStore.open(config);
        boolean done = false;
        try {
            store.mount(segment, bytes);
            done = true;
            return store;
        } finally {
            if (!done) {
                store.close();
            }
        }
    }

    private static final class OneUse implements Use {
        private final String name;
        private final Shared shared;
        private final Duration linger;
        private boolean closed;

        OneUse(String name, Shared shared, Duration linger) {
            this.name = name;
            this.shared = shared;
            this.linger = linger;
        }

        @Override
        public EmbeddedStore store() {
            return shared.store;
        }

        @Override
        public void close() {
            synchronized (STORES) {
                if (closed) {
                    return;
                }
                closed = true;
                shared.users--;
                if (shared.users == 0) {
                    closeLater(name, shared, linger);
                }
            }
        }
    }

    private static void closeLater(String name, Shared shared, Duration linger) {
        long departure = ++shared.departure;
        CompletableFuture.delayedExecutor(linger.toNanos(), TimeUnit.NANOSECONDS)
                .execute(() -> {
                    synchronized (STORES) {
                        if (shared.users > 0 || shared.departure != departure) {
                            return;
                        }
                        STORES.remove(name, shared);
                    }
                    shared.store.close();
                });
    }

    /// A store that is open, for inspection.
    public static Optional<EmbeddedStore> find(String name) {
        synchronized (STORES) {
            return Optional.ofNullable(STORES.get(name)).map(shared -> shared.store);
        }
    }

    /// Closes a store at once, whoever uses it: they see misses and refused puts from then on.
    public static void closeNow(String name) {
        Shared shared;
        synchronized (STORES) {
            shared = STORES.remove(name);
        }
        if (shared != null) {
            shared.store.close();
        }
    }
}
