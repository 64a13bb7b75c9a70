// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Predicate;

/// The one client of a cluster in this process, shared by the stores of equal configurations.
///
/// Its own thread creates the store, checks its connection, and destroys it: the library changes
/// the signal mask of the thread that creates a store. The JVM keeps its signal handlers. On JVM
/// exit a shutdown hook waits until no more calls are made, since a server that is being stopped
/// still answers requests while the hooks run. It then destroys what is open, for at most
/// [#EXIT_LIMIT].
///
/// Threading: any thread.
final class ClusterClient {
    private static final Logger LOG = LoggerFactory.getLogger(ClusterClient.class);

    private static final String NAME = "kvferry-mooncake-store";
    private static final int QUERY_THREADS = 2;
    private static final int MOVE_THREADS = 4;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);
    private static final Duration EXIT_LIMIT = Duration.ofSeconds(3);
    private static final Duration DRAIN_LIMIT = Duration.ofSeconds(10);
    private static final Duration QUIET = Duration.ofSeconds(1);
    private static final Duration LOOK = Duration.ofMillis(50);
    private static final Duration FIRST_RETRY = Duration.ofSeconds(1);
    private static final Duration LAST_RETRY = Duration.ofSeconds(30);
    private static final Duration CHECK_INTERVAL = Duration.ofSeconds(1);

    private static final Map<ClusterConfig, ClusterClient> CLIENTS = new HashMap<>();

    private final ClusterConfig config;
    private final StoreLibrary library;
    private final String host;
    private final CallThreads queries;
    private final CallThreads moves;
    private final Thread keeper;
    private final Thread exit;
    private final CountDownLatch firstTry = new CountDownLatch(1);
    private final CountDownLatch ending = new CountDownLatch(1);
    private final CountDownLatch ended = new CountDownLatch(1);
    private int users = 1;
    private volatile MemorySegment store = MemorySegment.NULL;
    private volatile int health = StoreCode.RPC_FAIL.number();
    private volatile long checked = System.nanoTime();

    private ClusterClient(ClusterConfig config, Function<String, ThreadFactory> threads) {
        this.config = config;
        this.library = StoreLibrary.load(config.library());
        this.host = config.host();
        this.exit = Thread.ofPlatform().name(NAME + "-exit").unstarted(this::exit);
        try (var parts = new OpeningParts()) {
            // Before the keeper: a thread that it started would have its signal mask.
            this.queries =
                    parts.add(
                            new CallThreads(QUERY_THREADS, threads.apply("-query-")),
                            ClusterClient::free);
            this.moves =
                    parts.add(
                            new CallThreads(MOVE_THREADS, threads.apply("-move-")),
                            ClusterClient::free);
            this.keeper = threads.apply("-keeper-").newThread(this::keep);
            keeper.start();
            parts.keep();
        }
    }

    private static ThreadFactory threads(String suffix) {
        return Thread.ofPlatform().daemon().name(NAME + suffix, 0).factory();
    }

    /// Of threads that have made no call.
    private static void free(CallThreads threads) {
        if (threads.drain(Deadline.in(Duration.ZERO))) {
            threads.free();
        }
    }

    /// The client for a configuration. It connects in the background and retries.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] without the library, [ErrorCode#NO_MEMORY]
    ///   when a thread cannot be created, and as of [ClusterConfig#host]
    static ClusterClient use(ClusterConfig config) {
        return use(config, ClusterClient::threads);
    }

    /// @param threads by the ends of their names
    static ClusterClient use(ClusterConfig config, Function<String, ThreadFactory> threads) {
        synchronized (CLIENTS) {
            ClusterClient known = CLIENTS.get(config);
            if (known != null) {
                known.users++;
                return known;
            }
            var made = open(config, threads);
            CLIENTS.put(config, made);
            try {
                Runtime.getRuntime().addShutdownHook(made.exit);
            } catch (IllegalStateException e) {
                LOG.debug("the process is ending: {}", e.toString());
            }
            return made;
        }
    }

    private static ClusterClient open(
            ClusterConfig config, Function<String, ThreadFactory> threads) {
        try {
            return new ClusterClient(config, threads);
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "no client of the Mooncake master at " + config.master() + ": " + e,
                    e);
        }
    }

    /// Ends one use; the last one ends the client.
    void release() {
        synchronized (CLIENTS) {
            users--;
            if (users > 0) {
                return;
            }
            CLIENTS.remove(config, this);
        }
        end(CLOSE_LIMIT);
        try {
            Runtime.getRuntime().removeShutdownHook(exit);
        } catch (IllegalStateException e) {
            LOG.debug("the process is ending: {}", e.toString());
        }
    }

    private void exit() {
        awaitQuiet(QUIET, Deadline.in(DRAIN_LIMIT));
        end(EXIT_LIMIT);
    }

    /// Waits until no call has been made for `quiet`, the client has ended, or the limit expires.
    void awaitQuiet(Duration quiet, Deadline limit) {
        try {
            while (!limit.passed()
                    && (queries.usedWithin(quiet) || moves.usedWithin(quiet))
                    && !ended.await(LOOK.toNanos(), TimeUnit.NANOSECONDS)) {
                continue;
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    private void end(Duration limit) {
        ending.countDown();
        awaitEnd(Deadline.in(limit));
    }

    private void awaitEnd(Deadline limit) {
        try {
            if (!ended.await(limit.remainingNanos(), TimeUnit.NANOSECONDS)) {
                LOG.warn("Mooncake's client of {} did not end in time", config.master());
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    /// Waits for the first attempt to connect.
    void awaitFirstTry(Deadline limit) {
        try {
            if (!firstTry.await(limit.remainingNanos(), TimeUnit.NANOSECONDS)) {
                LOG.warn(
                        "the Mooncake master at {} has not answered yet; engines work without it"
                                + " until it does",
                        config.master());
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    private void keep() {
        try {
            persist(this::connectAndWatch, this::endsWithin);
            shutDown();
        } catch (RuntimeException | Error e) {
            LOG.error("Mooncake's client of {} failed", config.master(), e);
        } finally {
            firstTry.countDown();
            ended.countDown();
        }
    }

    /// Runs work until it returns normally. After an exception, which may be transient (such as an
    /// OutOfMemoryError), it is run again after a pause.
    ///
    /// @param endsWithin waits for a time; true when there is nothing more to do
    static void persist(Runnable work, Predicate<Duration> endsWithin) {
        @Nullable Throwable failure = null;
        boolean over = false;
        while (!over) {
            try {
                if (failure != null) { // here, for saying so may fail as well
                    LOG.error("a client of a Mooncake master failed and retries", failure);
                }
                work.run();
                over = true;
            } catch (RuntimeException | Error e) {
                failure = e;
                over = endsWithin.test(FIRST_RETRY);
            }
        }
    }

    private void connectAndWatch() {
        if (store.address() != 0 || connect()) {
            watch();
        }
    }

    /// Whether tenants are kept apart: the library sends the tenant to the master, or it is the
    /// default one.
    boolean tellsTenantsApart() {
        return library.knowsTenants() || config.tenant().equals("default");
    }

    /// Until it is connected, or the client ends.
    private boolean connect() {
        Duration pause = FIRST_RETRY;
        boolean said = false;
        do {
            MemorySegment made = library.create();
            int code =
                    made.address() == 0
                            ? StoreCode.INTERNAL.number()
                            : library.setup(made, config, host);
            if (code == 0) {
                if (!tellsTenantsApart()) {
                    LOG.info(
                            "this release of Mooncake's library has no tenants; blocks of tenant {}"
                                    + " are told apart by their keys alone",
                            config.tenant());
                }
                LOG.info(
                        "connected to the Mooncake master at {} as {} ({}, segment of {} bytes)",
                        config.master(),
                        host,
                        config.protocol(),
                        config.segmentBytes());
                health = 0;
                checked = System.nanoTime();
                store = made;
                firstTry.countDown();
                return true;
            }
            if (made.address() != 0) {
                library.destroy(made);
            }
            firstTry.countDown();
            if (!said) {
                said = true;
                LOG.warn(
                        "no connection to the Mooncake master at {}: setup answered {}, the"
                                + " library's log on stderr says why; tried again",
                        config.master(),
                        StoreCode.text(code));
            }
            if (endsWithin(pause)) {
                return false;
            }
            pause =
                    pause.multipliedBy(2).compareTo(LAST_RETRY) > 0
                            ? LAST_RETRY
                            : pause.multipliedBy(2);
        } while (true);
    }

    private void watch() {
        while (!endsWithin(CHECK_INTERVAL)) {
            int code = library.healthCheck(store);
            if ((code == 0) != (health == 0)) {
                LOG.warn(
                        "the Mooncake cluster at {} {}",
                        config.master(),
                        code == 0 ? "works again" : "does not work: " + StoreCode.text(code));
            }
            health = code;
            checked = System.nanoTime();
        }
    }

    private boolean endsWithin(Duration time) {
        try {
            return ending.await(time.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException _) {
            return true; // interrupted only to end this thread
        }
    }

    private void shutDown() {
        MemorySegment last = store;
        store = MemorySegment.NULL; // threads that are taken from now on make no call
        var limit = Deadline.in(callsLimit());
        if (queries.drain(limit) & moves.drain(limit)) {
            if (last.address() != 0) {
                library.destroy(last);
            }
            queries.free(); // the library has the memory registered until it is destroyed
            moves.free();
        } else {
            LOG.warn(
                    "a call into Mooncake's store does not return; its client of {} stays as it is"
                            + " until the process ends",
                    config.master());
        }
    }

    /// For calls that are under way at the end; the rest of the time is the library's.
    private Duration callsLimit() {
        Duration most = CLOSE_LIMIT.minusSeconds(4);
        Duration call = config.moveLimit().plusSeconds(3); // for a busy machine
        return call.compareTo(most) < 0 ? call : most;
    }

    ClusterConfig config() {
        return config;
    }

    StoreLibrary library() {
        return library;
    }

    /// The library's handle, for who has a thread.
    ///
    /// @return NULL while it is not connected
    MemorySegment store() {
        return store;
    }

    /// For lookups and removals.
    CallThreads queries() {
        return queries;
    }

    /// For values.
    CallThreads moves() {
        return moves;
    }

    /// 0 while it works, else a code. Never waits.
    int health() {
        if (health == 0
                && (System.nanoTime() - checked
                        > config.askLimit().plus(CHECK_INTERVAL).toNanos())) {
            return StoreCode.RPC_TIMEOUT.number();
        }
        return health;
    }
}
