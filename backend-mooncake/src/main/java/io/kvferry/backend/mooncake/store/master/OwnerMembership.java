// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireWriter;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Reports an owner to a master again and again, from its start to its end. The owner serves its
/// users whether the master is there or not.
///
/// Threading: any thread; it has one of its own.
public final class OwnerMembership implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerMembership.class);
    private static final Duration ASK = Duration.ofSeconds(5);
    private static final Duration RETRY = Duration.ofMillis(500);
    private static final Duration LONGEST_REST = Duration.ofSeconds(2);
    private static final Duration SHORTEST_REST = Duration.ofMillis(20);
    private static final Duration LAST_REPORT = ASK.multipliedBy(3);
    private static final Duration LEAVE = Duration.ofSeconds(1);
    private static final int SIGNS_OF_LIFE = 5;

    private final RemoteStoreConfig master;
    private final ListedOwner owner;
    private final StoreQuestions questions;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition ended = lock.newCondition();
    private final Thread thread;
    private volatile Duration rest = RETRY;
    private String told = "";
    private volatile boolean listed;
    private volatile boolean closed;

    private OwnerMembership(RemoteStoreConfig master, ListedOwner owner, ThreadFactory threads) {
        this.master = master;
        this.owner = owner;
        this.thread = threads.newThread(this::live);
        this.questions =
                new StoreQuestions("kvferry-owner-member", master.address(), master.secret());
    }

    /// Reports an owner whose port is open. When the master is there it is listed on return.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#BAD_CONFIG] when the master is on another
    ///   host and there is no secret
    public static OwnerMembership start(RemoteStoreConfig master, StoreOwner owner) {
        return start(
                master,
                new ListedOwner(
                        owner.address(),
                        owner.address(),
                        ListedOwner.newEpoch(),
                        owner.store().capacity()));
    }

    static OwnerMembership start(RemoteStoreConfig master, ListedOwner owner) {
        return start(
                master, owner, Thread.ofPlatform().daemon().name("kvferry-owner-life").factory());
    }

    static OwnerMembership start(
            RemoteStoreConfig master, ListedOwner owner, ThreadFactory threads) {
        master.checkSecret();
        var membership = new OwnerMembership(master, owner, threads);
        boolean done = false;
        try {
            membership.rest = membership.report();
            membership.thread.start();
            done = true;
            return membership;
        } finally {
            if (!done) {
                membership.close();
            }
        }
    }

    private void live() {
        while (!closed) {
            try {
                pause(rest);
                rest = RETRY;
                rest = closed ? rest : report();
            } catch (InterruptedException _) {
                return;
            } catch (RuntimeException | Error e) {
                LOG.debug("a report to the master at {} failed", master.address(), e);
            }
        }
    }

    private void pause(Duration rest) throws InterruptedException {
        lock.lock();
        try {
            long left = rest.toNanos();
            while (left > 0 && !closed) {
                left = ended.awaitNanos(left);
            }
        } finally {
            lock.unlock();
        }
    }

    /// @return how long to wait before the next one
    private Duration report() {
        Duration limit = master.askLimit(ASK);
        StoreQuestions.Answer answer = questions.ask(question(Operation.REGISTER, limit), limit);
        if (answer.code() != 0) {
            return notListed(refusal(answer));
        }
        Duration rest;
        try {
            rest = Duration.ofNanos(answer.body().i64()).dividedBy(SIGNS_OF_LIFE);
        } catch (KvFerryException e) {
            return notListed("its answer is malformed: " + e.getMessage());
        }
        listed = true;
        tell("");
        rest = rest.compareTo(LONGEST_REST) > 0 ? LONGEST_REST : rest;
        return rest.compareTo(SHORTEST_REST) < 0 ? SHORTEST_REST : rest;
    }

    private static String refusal(StoreQuestions.Answer answer) {
        if (answer.code() == StoreCode.SEGMENT_ALREADY_EXISTS.number()) {
            return "a later life of this owner, or another owner of its name or address, is listed";
        }
        return answer.code() == StoreCode.SEGMENT_NOT_FOUND.number()
                ? "this owner is forgotten: what it holds may have been removed meanwhile. Empty its"
                        + " disk tier, recall it (kvferry store forget-owner --undo) and start it"
                        + " anew"
                : answer.trouble();
    }

    private Duration notListed(String trouble) {
        listed = false;
        tell(trouble);
        return RETRY;
    }

    private WireWriter question(Operation operation, Duration limit) {
        WireWriter question = StoreProtocol.question(operation, 0, limit);
        owner.write(question);
        return question;
    }

    /// Says so when it changes; called by one thread at a time.
    private void tell(String trouble) {
        if (trouble.equals(told) || closed) {
            return;
        }
        if (trouble.isEmpty()) {
            LOG.info("the master at {} lists this owner again", master.address());
        } else if (told.isEmpty()) {
            LOG.warn(
                    "the master at {} does not list this owner: {}. Users that know it go on, and"
                            + " the master is told again and again",
                    master.address(),
                    trouble);
        }
        told = trouble;
    }

    /// Whether the master has it on its list, as far as is known.
    public boolean isListed() {
        return listed;
    }

    /// Unregisters the owner. Waits for the report in progress first, for a bounded time and unless
    /// interrupted, since a later report would list the owner again. Idempotent.
    @Override
    public void close() {
        lock.lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
            ended.signalAll();
        } finally {
            lock.unlock();
        }
        try {
            if (thread.getState() != Thread.State.NEW) {
                thread.join(LAST_REPORT);
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
        // Also where no report was answered: the master may have heard it.
        var _ = questions.askSurely(question(Operation.LEAVE, LEAVE), LEAVE);
        questions.close();
    }
}
