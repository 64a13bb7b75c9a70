// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.RemovedKeys;
import io.kvferry.backend.mooncake.store.Store.Removals;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions.Answer;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The connection of a user to the owner of a store. Its thread opens the session, sends pings, and
/// reopens the session after the owner was unreachable. Without a session every request fails at
/// once with RPC_FAIL.
///
/// Threading: any thread; [#ask] blocks until the answer arrives or the limit expires.
final class OwnerLink implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerLink.class);
    private static final Duration RETRY = Duration.ofMillis(500);
    private static final Duration PING_LIMIT = Duration.ofSeconds(5);
    private static final int SIGNS_OF_LIFE = 6;

    private final String address;
    private final StoreIdentity identity;
    private final boolean announces;
    private final StoreQuestions questions;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final RemovedKeys removed = new RemovedKeys();
    private boolean warned;
    private long lastStore;
    private volatile Optional<Session> session = Optional.empty();
    private volatile Optional<StoreUsage> usage = Optional.empty();
    private volatile boolean closed;

    /// A session with one life of an owner.
    ///
    /// @param store differs for every life
    /// @param engine name of the owner's transfer engine
    /// @param incarnation of that engine
    /// @param segment name of the owner's segment
    /// @param limit how long the session lasts without a sign of life
    record Session(
            long id,
            long store,
            String engine,
            String incarnation,
            String segment,
            Duration limit) {}

    /// @param address `host:port` of the owner
    /// @param announces whether this user is the one that logs when the owner goes and comes back
    OwnerLink(
            String address,
            Optional<FleetSecret> secret,
            StoreIdentity identity,
            boolean announces) {
        this.address = address;
        this.identity = identity;
        this.announces = announces;
        this.questions = new StoreQuestions("kvferry-store-user", address, secret);
    }

    /// Opens the session if the owner is reachable, and retries in the background if not.
    void start() {
        begin();
        Thread.ofPlatform().daemon().name("kvferry-store-life").start(new LastingLoop(this::live));
    }

    /// Opens the session if the owner is there now.
    void begin() {
        step();
    }

    private void live() {
        while (!closed) {
            try {
                pause();
                step();
            } catch (InterruptedException _) {
                return;
            } catch (RuntimeException | Error e) {
                LOG.debug("a sign of life to {} failed", address, e);
            }
        }
    }

    private void pause() throws InterruptedException {
        lock.lock();
        try {
            Duration rest =
                    session.map(open -> open.limit().dividedBy(SIGNS_OF_LIFE)).orElse(RETRY);
            long left = Math.min(rest.toNanos(), Duration.ofSeconds(2).toNanos());
            boolean open = session.isPresent();
            while (left > 0 && !closed && open == session.isPresent()) {
                left = changed.awaitNanos(left);
            }
        } finally {
            lock.unlock();
        }
    }

    private void step() {
        var open = session;
        if (closed) {
            return;
        }
        if (open.isPresent()) {
            ping(open.get());
        } else {
            hello();
        }
    }

    private void hello() {
        WireWriter question =
                StoreProtocol.question(Operation.HELLO, 0, PING_LIMIT)
                        .string(identity.tenant())
                        .string(identity.model())
                        .string(identity.layout());
        Answer answer = questions.ask(question, PING_LIMIT);
        if (answer.code() != 0) {
            away(answer.trouble());
            return;
        }
        WireReader in = answer.body();
        var opened =
                new Session(
                        in.i64(),
                        in.i64(),
                        in.string(),
                        in.string(),
                        in.string(),
                        Duration.ofNanos(in.i64()));
        lock.lock();
        try {
            // Earlier objects may be gone, and removals during the outage were not recorded.
            if (lastStore != 0) {
                removed.addAll();
            }
            boolean another = lastStore != opened.store();
            lastStore = opened.store();
            session = Optional.of(opened);
            if (warned && announces) {
                LOG.info(
                        "the store at {} is back{}",
                        address,
                        another ? ", with a new life: what it held is lost" : "");
            }
            warned = false;
        } finally {
            lock.unlock();
        }
    }

    private void ping(Session open) {
        Answer answer =
                questions.ask(
                        StoreProtocol.question(Operation.PING, open.id(), PING_LIMIT), PING_LIMIT);
        if (answer.code() != 0) {
            lost(open, answer.trouble());
            return;
        }
        WireReader in = answer.body();
        if (in.bool()) {
            removed.addAll();
        }
        for (int n = in.count(4); n > 0; n--) {
            removed.add(in.string());
        }
        usage = in.bool() ? Optional.of(OwnerCalls.readUsage(in)) : usage;
    }

    /// The session is over.
    private void lost(Session open, String why) {
        lock.lock();
        try {
            if (session.filter(now -> now == open).isEmpty()) {
                return;
            }
            session = Optional.empty();
            usage = Optional.empty();
            removed.addAll();
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        away(why);
    }

    private void away(String why) {
        boolean first;
        lock.lock();
        try {
            first = !warned && !closed;
            warned = true;
        } finally {
            lock.unlock();
        }
        if (first && announces) {
            LOG.warn(
                    "the store at {} cannot be used: {}. Serving goes on without it, and it is"
                            + " tried again and again",
                    address,
                    why);
        }
    }

    Optional<Session> session() {
        return closed ? Optional.empty() : session;
    }

    boolean isClosed() {
        return closed;
    }

    Optional<StoreUsage> usage() {
        return usage;
    }

    Removals removals() {
        return removed.drain();
    }

    /// Asks a question in a session.
    Answer ask(Session open, Operation operation, Duration limit, Consumer<WireWriter> body) {
        if (closed) {
            return Answer.failed(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS);
        }
        WireWriter question = StoreProtocol.question(operation, open.id(), limit);
        body.accept(question);
        Answer answer =
                operation.mustBeHeard()
                        ? questions.askSurely(question, limit)
                        : questions.ask(question, limit);
        int code = answer.code();
        boolean gone = code == StoreCode.CLIENT_NOT_FOUND.number();
        if (gone || code == StoreCode.RPC_FAIL.number()) {
            lost(open, gone ? "it has restarted" : answer.trouble());
            return Answer.failed(StoreCode.RPC_FAIL);
        }
        return answer;
    }

    /// Sends a message to the owner on another thread. Delivery is not confirmed.
    void tell(Session open, Operation operation, Duration limit, Consumer<WireWriter> body) {
        if (!closed) {
            WireWriter question = StoreProtocol.question(operation, open.id(), limit);
            body.accept(question);
            questions.tell(question, limit);
        }
    }

    /// Asks a question outside of a session.
    Answer ask(WireWriter question, Duration limit) {
        return questions.ask(question, limit);
    }

    @Override
    public void close() {
        var open = session;
        lock.lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        open.ifPresent(last ->
                questions.askSurely(
                        StoreProtocol.question(Operation.BYE, last.id(), Duration.ofSeconds(1)),
                        Duration.ofSeconds(1)));
        questions.close();
    }
}
