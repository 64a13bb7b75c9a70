// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.FileCalls;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The stores of this JVM by name. The first half that uses a store opens it. The store outlives
/// its last user for a while, so that a restarted engine finds its blocks.
///
/// Threading: any thread. Memory is mapped outside the lock, so that opening one store does not
/// block users of another.
public final class EmbeddedStores {
    private static final Logger LOG = LoggerFactory.getLogger(EmbeddedStores.class);
    private static final Map<String, Shared> STORES = new HashMap<>();

    /// How long a user waits while the same store is being opened or closed.
    private static final long OPENING_SECONDS = 120;

    private EmbeddedStores() {}

    private static final class Shared {
        final CompletableFuture<EmbeddedStore> store = new CompletableFuture<>();
        final long bytes;
        final StoreConfig config;
        final Optional<TierConfig> tier;
        final CompletableFuture<Boolean> closed = new CompletableFuture<>();
        int users;

        /// Whether it takes no more users. It stays known until it is closed: until then its disk
        /// tier has the folder.
        boolean closing;

        /// Differs for every time that the store is left by its last user.
        long departure;

        Shared(long bytes, StoreConfig config, Optional<TierConfig> tier) {
            this.bytes = bytes;
            this.config = config;
            this.tier = tier;
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
    /// @throws KvFerryException [ErrorCode#NO_MEMORY] when there is no memory for it,
    ///   [ErrorCode#TIMEOUT] when it has been closing, or another user opening it, for two minutes
    public static Use use(
            String name, String segment, long bytes, StoreConfig config, Duration linger) {
        return use(name, segment, bytes, config, linger, Optional.empty());
    }

    /// As [#use(String, String, long, StoreConfig, Duration)], over a disk tier.
    ///
    /// @throws KvFerryException also [ErrorCode#BAD_CONFIG] or [ErrorCode#STORAGE_IO] when the tier
    ///   cannot be opened
    public static Use use(
            String name,
            String segment,
            long bytes,
            StoreConfig config,
            Duration linger,
            Optional<TierConfig> tier) {
        var wanted = new Shared(bytes, config, tier);
        Shared shared = join(name, wanted);
        if (shared == wanted) {
            open(name, shared, segment);
        } else {
            warnOfDifferences(name, shared, bytes, config, tier);
        }
        boolean opened = false;
        try {
            var use = new OneUse(name, shared, linger, opened(name, shared));
            opened = true;
            return use;
        } finally {
            if (!opened) {
                leave(name, shared, linger);
            }
        }
    }

    /// Adds a user to the store that is known, or to `wanted`, which is known then. A store that is
    /// closing is waited for.
    private static Shared join(String name, Shared wanted) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(OPENING_SECONDS);
        while (true) {
            Shared known;
            synchronized (STORES) {
                known = STORES.get(name);
                if (known == null || !known.closing) {
                    Shared joined = known == null ? wanted : known;
                    STORES.putIfAbsent(name, joined);
                    joined.users++;
                    return joined;
                }
            }
            awaitClosed(name, known, end - System.nanoTime());
        }
    }

    private static void awaitClosed(String name, Shared shared, long nanos) {
        try {
            var _ = shared.closed.get(nanos, TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw new IllegalStateException("never completed so", e);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "store " + name + " is not closed after " + OPENING_SECONDS + " s",
                    e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while store " + name + " was closed", e);
        }
    }

    private static void warnOfDifferences(
            String name, Shared shared, long bytes, StoreConfig config, Optional<TierConfig> tier) {
        if (!shared.tier.equals(tier)) {
            LOG.warn(
                    "store {} keeps the disk tier of who opened it; another one that is wanted now"
                            + " is of no effect",
                    name);
        }
        if (shared.bytes != bytes) {
            LOG.warn(
                    "store {} has {} bytes already; the {} that are wanted now are of no effect",
                    name,
                    shared.bytes,
                    bytes);
        }
        if (!shared.config.equals(config)) {
            LOG.warn(
                    "store {} keeps the leases, eviction and checksums of who opened it; the"
                            + " other ones that are wanted now are of no effect",
                    name);
        }
    }

    private static void open(String name, Shared shared, String segment) {
        EmbeddedStore store = null;
        try {
            store =
                    shared.tier.isEmpty()
                            ? EmbeddedStore.open(shared.config)
                            : EmbeddedStore.open(
                                    shared.config,
                                    DiskTier.open(
                                            shared.tier.get(),
                                            SegmentMemory.PRIVATE,
                                            FileCalls.ofPlatform()));
            store.mount(segment, shared.bytes);
            LOG.info("store {}: {} bytes in segment {}", name, shared.bytes, segment);
            shared.store.complete(store);
        } catch (RuntimeException | Error e) {
            try {
                if (store != null) {
                    store.close();
                }
            } finally {
                synchronized (STORES) {
                    STORES.remove(name, shared); // the next one tries again
                }
                shared.store.completeExceptionally(e);
            }
        }
    }

    private static EmbeddedStore opened(String name, Shared shared) {
        try {
            return shared.store.get(OPENING_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof KvFerryException known) {
                throw known;
            }
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "store " + name + " was not opened: " + e.getCause(), e);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "store " + name + " is not open after " + OPENING_SECONDS + " s",
                    e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while store " + name + " was opened", e);
        }
    }

    private static final class OneUse implements Use {
        private final String name;
        private final Shared shared;
        private final Duration linger;
        private final EmbeddedStore store;
        private boolean closed;

        OneUse(String name, Shared shared, Duration linger, EmbeddedStore store) {
            this.name = name;
            this.shared = shared;
            this.linger = linger;
            this.store = store;
        }

        @Override
        public EmbeddedStore store() {
            return store;
        }

        @Override
        public void close() {
            synchronized (this) {
                if (closed) {
                    return;
                }
                closed = true;
            }
            leave(name, shared, linger);
        }
    }

    private static void leave(String name, Shared shared, Duration linger) {
        synchronized (STORES) {
            shared.users--;
            if (shared.users == 0) {
                closeLater(name, shared, linger);
            }
        }
    }

    private static void closeLater(String name, Shared shared, Duration linger) {
        long departure = ++shared.departure;
        CompletableFuture.delayedExecutor(
                        linger.toNanos(), TimeUnit.NANOSECONDS, EmbeddedStores::onItsOwnThread)
                .execute(() -> {
                    synchronized (STORES) {
                        if (shared.users > 0 || shared.departure != departure || shared.closing) {
                            return;
                        }
                        shared.closing = true;
                    }
                    close(name, shared);
                });
    }

    /// Closing takes seconds where the disk is slow, and the common pool has one thread on two
    /// processors, which belongs to everybody.
    private static void onItsOwnThread(Runnable task) {
        try {
            Thread.ofPlatform().daemon().name("kvferry-store-close").start(task);
        } catch (OutOfMemoryError _) { // no more threads
            ForkJoinPool.commonPool().execute(task);
        }
    }

    /// Closes the store, or sees to it that it is closed when it has been opened. Called once,
    /// after [Shared#closing] has been set.
    private static void close(String name, Shared shared) {
        shared.store.whenComplete((store, _) -> {
            try {
                if (store != null) {
                    store.close();
                }
            } catch (RuntimeException | Error e) {
                LOG.error("store {} did not close properly", name, e);
            } finally {
                synchronized (STORES) {
                    STORES.remove(name, shared);
                }
                shared.closed.complete(true);
            }
        });
    }

    /// A store that is open, for inspection.
    public static Optional<EmbeddedStore> find(String name) {
        synchronized (STORES) {
            Shared shared = STORES.get(name);
            return shared == null || shared.closing || !shared.store.isDone()
                    ? Optional.empty()
                    : Optional.of(shared.store.join());
        }
    }

    /// Closes a store immediately, even if it is in use: its users then see misses and refused
    /// puts.
    public static void closeNow(String name) {
        Shared shared;
        synchronized (STORES) {
            shared = STORES.get(name);
            if (shared == null || shared.closing) {
                return;
            }
            shared.closing = true;
        }
        close(name, shared);
    }
}
