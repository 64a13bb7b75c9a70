// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Polls the master for its list of owners. While the master does not answer, the last list stays
/// in effect.
///
/// Threading: any thread. The listener is called on the thread that polls, and first on the one
/// that calls [#open].
public final class MasterView implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(MasterView.class);
    private static final Duration ASK = Duration.ofSeconds(5);
    private static final Duration REST = Duration.ofSeconds(1);
    private static final int LEAST_BYTES = 24;

    private final RemoteStoreConfig master;
    private final boolean announces;
    private final Listener listener;
    private final StoreQuestions questions;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition ended = lock.newCondition();
    private long life;
    private long version;
    private boolean warned;
    private volatile boolean closed;

    /// Receives changes of the list.
    @FunctionalInterface
    public interface Listener {
        /// The list has changed.
        ///
        /// @param whole whether the list is complete, so that an owner missing from it does not
        ///   run. False for a while after the start of a master, when running owners may not have
        ///   reported yet
        /// @param forgotten segments whose owners are not listed, even if they report
        /// @return whether the change was applied; if not, it is delivered again with the next
        ///   answer
        boolean changed(List<ListedOwner> owners, boolean whole, Set<String> forgotten);
    }

    /// What an owner is to a master.
    public enum Standing {
        /// It is there.
        LISTED,
        /// An operator has declared it gone for good.
        FORGOTTEN,
        /// It has never reported, has left, or has not been heard of for too long.
        UNKNOWN
    }

    private record Listed(List<ListedOwner> owners, Set<String> forgotten) {
        Standing standing(String segment) {
            if (forgotten.contains(segment)) {
                return Standing.FORGOTTEN;
            }
            boolean there = owners.stream().anyMatch(owner -> owner.segment().equals(segment));
            return there ? Standing.LISTED : Standing.UNKNOWN;
        }
    }

    private MasterView(RemoteStoreConfig master, boolean announces, Listener listener) {
        this.master = master;
        this.announces = announces;
        this.listener = listener;
        this.questions =
                new StoreQuestions("kvferry-master-view", master.address(), master.secret());
    }

    /// Starts to poll. If the master answers, the listener has been called when this returns.
    ///
    /// @param announces whether this view, of all in the process, logs when the master stops
    ///   answering and answers again
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when the master is on another host and there
    ///   is no secret
    public static MasterView open(RemoteStoreConfig master, boolean announces, Listener listener) {
        master.checkSecret();
        var view = new MasterView(master, announces, listener);
        boolean done = false;
        try {
            view.step();
            Thread.ofPlatform()
                    .daemon()
                    .name("kvferry-master-view")
                    .start(new LastingLoop(view::live));
            done = true;
            return view;
        } finally {
            if (!done) {
                view.close();
            }
        }
    }

    /// Asks once.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_LOST] when the master does not answer
    public static List<ListedOwner> ask(RemoteStoreConfig master) {
        return list(master).owners;
    }

    private static Listed list(RemoteStoreConfig master) {
        master.checkSecret();
        var found = new AtomicReference<>(new Listed(List.of(), Set.of()));
        try (var view =
                new MasterView(
                        master,
                        false,
                        (owners, _, forgotten) -> {
                            found.set(new Listed(owners, forgotten));
                            return true;
                        })) {
            var trouble = view.poll();
            if (!trouble.isEmpty()) {
                throw new KvFerryException(
                        ErrorCode.PEER_LOST,
                        "the master at "
                                + master.address()
                                + " does not answer ("
                                + trouble
                                + "); is `kvferry master` running there, with the secret that is set here?");
            }
        }
        return found.get();
    }

    /// Tells the master that an owner is gone for good, or that it may come back.
    ///
    /// @param segment of the owner, which is its `host:port`
    /// @return what the owner was to the master just before
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when `segment` is not `host:port`,
    ///   [ErrorCode#PEER_LOST] when the master does not answer, or [ErrorCode#UNAVAILABLE] when it
    ///   refuses
    public static Standing forget(RemoteStoreConfig master, String segment, boolean forgotten) {
        String owner = master.at(segment).address();
        Standing before = list(master).standing(owner);
        Duration limit = master.askLimit(ASK);
        try (var questions =
                new StoreQuestions("kvferry-master-ask", master.address(), master.secret())) {
            StoreQuestions.Answer answer =
                    questions.ask(
                            StoreProtocol.question(Operation.FORGET, 0, limit)
                                    .string(owner)
                                    .bool(forgotten),
                            limit);
            if (answer.code() != 0) {
                throw new KvFerryException(
                        ErrorCode.UNAVAILABLE,
                        "the master at " + master.address() + ": " + answer.trouble());
            }
        }
        return before;
    }

    private void live() {
        while (!closed) {
            try {
                pause();
                step();
            } catch (InterruptedException _) {
                return;
            } catch (RuntimeException | Error e) {
                LoopReport.WARN.log(
                        LOG, "the list of the master at {} was not read", master.address(), e);
            }
        }
    }

    private void pause() throws InterruptedException {
        lock.lock();
        try {
            long left = REST.toNanos();
            while (left > 0 && !closed) {
                left = ended.awaitNanos(left);
            }
        } finally {
            lock.unlock();
        }
    }

    private void step() {
        if (!closed) {
            tell(poll());
        }
    }

    /// @return why there is no answer; empty when there is one
    private String poll() {
        Duration limit = master.askLimit(ASK);
        StoreQuestions.Answer answer =
                questions.ask(
                        StoreProtocol.question(Operation.OWNERS, 0, limit).i64(life).i64(version),
                        limit);
        if (answer.code() != 0) {
            return answer.trouble();
        }
        try {
            read(answer.body());
            return "";
        } catch (KvFerryException e) {
            return "its answer is malformed: " + e.getMessage();
        }
    }

    private void read(WireReader in) {
        long nowLife = in.i64();
        long nowVersion = in.i64();
        boolean whole = in.bool();
        boolean taken = true;
        if (in.bool()) {
            int count = StoreProtocol.count(in, LEAST_BYTES, OwnerTable.MOST_OWNERS);
            var owners = new ArrayList<ListedOwner>(count);
            for (int i = 0; i < count; i++) {
                owners.add(ListedOwner.read(in));
            }
            taken = listener.changed(owners, whole, Set.copyOf(StoreProtocol.readKeys(in)));
        }
        if (taken) {
            life = nowLife;
            version = nowVersion;
        }
    }

    private void tell(String trouble) {
        if (trouble.isEmpty() == !warned || closed) {
            return;
        }
        warned = !trouble.isEmpty();
        if (!announces) {
            return;
        }
        if (warned) {
            LOG.warn(
                    "the master at {} cannot be used: {}. The owners that are known go on, and it"
                            + " is tried again and again",
                    master.address(),
                    trouble);
        } else {
            LOG.info("the master at {} is back", master.address());
        }
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            ended.signalAll();
        } finally {
            lock.unlock();
        }
        questions.close();
    }
}
