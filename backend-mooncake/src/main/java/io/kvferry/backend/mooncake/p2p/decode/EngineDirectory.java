// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.RecentMap;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The prefiller engines found through the bootstrap services that requests name. Concurrent
/// requests for one engine share one lookup. An engine that failed a request is forgotten and
/// looked up again.
///
/// An engine that does not announce its size may have been listed before all its workers had
/// registered. It is checked again after it has served a request, which needs all workers.
///
/// Threading: called on the decode loop; answers come on that loop too. The HTTP calls run on
/// virtual threads.
final class EngineDirectory implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(EngineDirectory.class);
    private static final int ATTEMPTS = 3;

    /// Preallocated, for when there is no memory to describe the failure.
    private static final Answer NO_MEMORY =
            new Answer.NotFound(
                    new Failure(ErrorCode.NO_MEMORY, "no memory to look a prefiller up"));

    /// Of each kind: one that is forgotten is asked for again.
    private static final int MOST_ENGINES = 1024;

    private static final Duration BACK_OFF = Duration.ofMillis(100);

    /// Least time between two reviews of an engine.
    private static final Duration AGAIN = Duration.ofSeconds(1);

    /// How long an engine may be missing or incomplete before that is a failure.
    private static final Duration START_UP = Duration.ofSeconds(5);

    private final BootstrapClient client;
    private final BootstrapCalls calls = new BootstrapCalls();
    private final Executor loop;
    private final ThreadFactory threads;
    private final Duration limit;
    private final Map<Key, EngineEntry> known;

    /// Engines to which no connection is left, for when the bootstrap service does not answer.
    private final Map<Key, EngineEntry> resting;

    private final Map<Key, List<Consumer<Answer>>> asked = new HashMap<>();
    private final Map<Key, List<Consumer<Answer>>> confirming = new HashMap<>();
    private final Map<Key, List<Consumer<Answer>>> reviewing = new HashMap<>();
    private final Map<Key, EngineEntry> confirmed;

    /// When engines were last looked up again.
    private final Map<Key, Long> reviewed;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition closing = lock.newCondition();
    private boolean closed;

    /// The name of an engine in `kv_transfer_params`.
    record Key(String bootstrap, String engineId) {}

    /// The result of a lookup.
    sealed interface Answer {
        record Found(EngineEntry engine) implements Answer {}

        record NotFound(Failure failure) implements Answer {}
    }

    EngineDirectory(SerialLoop loop, Duration limit, Optional<FleetSecret> secret) {
        this(loop, limit, secret, Thread.ofVirtual().name("mooncake-query").factory());
    }

    /// @param threads make a thread for each lookup
    EngineDirectory(
            SerialLoop loop, Duration limit, Optional<FleetSecret> secret, ThreadFactory threads) {
        this(loop::post, limit, secret, threads, MOST_ENGINES);
    }

    /// @param loop runs what it is given in order, on one thread
    /// @param most engines of each kind
    EngineDirectory(
            Executor loop,
            Duration limit,
            Optional<FleetSecret> secret,
            ThreadFactory threads,
            int most) {
        this.known = new RecentMap<>(most);
        this.resting = new RecentMap<>(most);
        this.confirmed = new RecentMap<>(most);
        this.reviewed = new RecentMap<>(most);
        this.threads = threads;
        this.loop = loop;
        this.limit = limit;
        this.client = new BootstrapClient(limit, secret);
    }

    void find(Key key, Consumer<Answer> then) {
        var engine = known.get(key);
        if (engine != null) {
            then.accept(new Answer.Found(engine));
            return;
        }
        ask(
                key,
                asked,
                answer -> then.accept(orResting(key, answer)),
                answer -> {
                    if (answer instanceof Answer.Found(var found)) {
                        known.put(key, found);
                    }
                    if (!isUnasked(answer)) {
                        resting.remove(key);
                    }
                });
    }

    /// A service that cannot be asked says nothing against what was known.
    private Answer orResting(Key key, Answer answer) {
        var before = resting.get(key);
        return isUnasked(answer) && before != null ? new Answer.Found(before) : answer;
    }

    private static boolean isUnasked(Answer answer) {
        return answer instanceof Answer.NotFound(var failure)
                && failure.code() != ErrorCode.NOT_FOUND;
    }

    /// Whether `listed`, which has served a request, was the whole engine; tells why not.
    void confirm(Key key, EngineEntry listed, Consumer<Optional<Failure>> then) {
        if (listed.tpSize() > 0 || listed.equals(confirmed.get(key))) {
            then.accept(Optional.empty());
            return;
        }
        ask(
                key,
                confirming,
                answer ->
                        then.accept(
                                switch (answer) {
                                    case Answer.Found(var now) -> compare(key, listed, now);
                                    case Answer.NotFound(var failure) -> Optional.of(failure);
                                }),
                _ -> {});
    }

    private Optional<Failure> compare(Key key, EngineEntry listed, EngineEntry now) {
        if (now.workers().equals(listed.workers())) {
            confirmed.put(key, listed);
            return Optional.empty();
        }
        known.remove(key, listed);
        return Optional.of(
                new Failure(
                        ErrorCode.NOT_FOUND,
                        "prefiller engine "
                                + key.engineId()
                                + " had listed "
                                + listed.workers().size()
                                + " of its workers, "
                                + now.workers().size()
                                + " by now"));
    }

    private void ask(
            Key key,
            Map<Key, List<Consumer<Answer>>> waiting,
            Consumer<Answer> then,
            Consumer<Answer> first) {
        Consumer<Answer> tell =
                answer -> {
                    var waiters = waiting.remove(key); // the next load asks again
                    tell(first, answer);
                    if (waiters != null) {
                        waiters.forEach(waiter -> tell(waiter, answer));
                    }
                };
        var waiters = waiting.computeIfAbsent(key, _ -> new ArrayList<>());
        waiters.add(then);
        if (waiters.size() > 1) {
            return;
        }
        try {
            threads.newThread(() -> lookUp(key, tell)).start();
        } catch (RuntimeException | Error e) { // those who come later must not wait for it
            tell.accept(notFound(e));
        }
    }

    private static Answer notFound(Throwable e) {
        try {
            return new Answer.NotFound(Failure.of(e));
        } catch (OutOfMemoryError _) {
            return NO_MEMORY;
        }
    }

    /// Retries until the result has been passed to the loop: until then later loads join the
    /// waiters.
    private void lookUp(Key key, Consumer<Answer> tell) {
        while (true) {
            try {
                var answer = answer(key);
                loop.execute(() -> tell.accept(answer));
                return;
            } catch (RuntimeException | Error e) {
                LoopReport.ERROR.log(LOG, "what is known of a prefiller is not passed on yet", e);
            }
            try {
                if (!pause()) {
                    return;
                }
            } catch (InterruptedException e) { // this thread is never interrupted
                Thread.currentThread().interrupt();
                return;
            } catch (RuntimeException | Error _) { // no memory for the pause either
                Thread.onSpinWait();
            }
        }
    }

    private Answer answer(Key key) {
        try {
            return look(key);
        } catch (RuntimeException e) { // a defect, which would be there the next time as well
            return new Answer.NotFound(Failure.of(e));
        }
    }

    /// A waiter that throws does not silence the others.
    private static void tell(Consumer<Answer> waiter, Answer answer) {
        try {
            waiter.accept(answer);
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "the answer to a lookup was not taken", e);
        }
    }

    /// Forgets an engine. The next use looks it up again, and falls back to the old entry when the
    /// bootstrap service does not answer, since a lost connection does not prove that the engine is
    /// gone.
    void forget(Key key) {
        var engine = known.remove(key);
        if (engine != null) {
            resting.put(key, engine);
        }
    }

    /// Looks an engine up again that refused a request, or does not fit: another one may be at its
    /// addresses, or it may not have been listed as a whole. At most once a second; what is known
    /// of it is used until there is an answer.
    void review(Key key) {
        long now = System.nanoTime();
        var last = reviewed.get(key);
        if (known.get(key) == null || last != null && now - last < AGAIN.toNanos()) {
            return;
        }
        reviewed.put(key, now);
        var before = known.get(key);
        ask(
                key,
                reviewing,
                _ -> {},
                answer -> {
                    if (answer instanceof Answer.Found(var found)) {
                        known.replace(key, found);
                    } else if (!isUnasked(answer)) {
                        known.remove(key, before);
                    }
                });
    }

    /// Forgets the engines of a worker to which no connection is left. Without a connection,
    /// another engine that replaces it would go unnoticed.
    void forgetWorker(String address) {
        known.entrySet()
                .removeIf(entry -> {
                    boolean has = entry.getValue().workers().containsValue(address);
                    if (has) {
                        resting.put(entry.getKey(), entry.getValue());
                    }
                    return has;
                });
    }

    private Answer look(Key key) {
        try {
            return new Answer.Found(lookUntil(key, Deadline.in(START_UP)));
        } catch (KvFerryException e) {
            return new Answer.NotFound(Failure.of(e));
        } catch (RuntimeException | Error e) { // the waiting caller must be notified
            return new Answer.NotFound(Failure.of(e));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return new Answer.NotFound(
                    new Failure(ErrorCode.CLOSED, "interrupted while asking " + key.bootstrap()));
        }
    }

    private EngineEntry lookUntil(Key key, Deadline until) throws InterruptedException {
        var base = BootstrapClient.baseAddress(key.bootstrap());
        while (true) {
            var engine =
                    query(base).values().stream()
                            .filter(entry -> entry.engineId().equals(key.engineId()))
                            .findFirst();
            if (engine.isPresent() && engine.get().complete()) {
                return engine.get();
            }
            if (until.passed() || !pause()) {
                var what =
                        engine.isPresent()
                                ? " is incomplete: "
                                        + engine.get().workers().size()
                                        + " of "
                                        + engine.get().effectiveTpSize()
                                                * engine.get().effectivePpSize()
                                        + " workers"
                                : " is not registered";
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND,
                        "prefiller engine " + key.engineId() + what + " at " + key.bootstrap());
            }
        }
    }

    private Map<Integer, EngineEntry> query(URI base) throws InterruptedException {
        for (int attempt = 1; ; attempt++) {
            try {
                return calls.run(base, Deadline.in(limit), () -> client.query(base));
            } catch (KvFerryException e) {
                if (attempt >= ATTEMPTS
                        || !e.code().retryable()
                        || e.code() == ErrorCode.TIMEOUT // it has taken all the time
                        || e.code() == ErrorCode.BACKPRESSURE
                        || !pause()) {
                    throw e;
                }
            }
        }
    }

    /// Waits for the back-off time; false when the directory is closed.
    private boolean pause() throws InterruptedException {
        lock.lock();
        try {
            long left = Math.min(BACK_OFF.toNanos(), limit.toNanos());
            while (left > 0 && !closed) {
                left = closing.awaitNanos(left);
            }
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            closing.signalAll();
        } finally {
            lock.unlock();
        }
        client.close();
    }
}
