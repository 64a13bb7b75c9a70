// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The client's end of a request: the scheduler puts tokens and the outcome in, the client takes
/// them out.
///
/// Threading: any thread.
final class Generation implements RequestHandle {
    private final String id;
    private final Consumer<Generation> onAbort;
    private final Consumer<Generation> onRelease;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final CompletableFuture<Outcome> future = new CompletableFuture<>();
    private int[] tokens = new int[16];

    /// One for each token, or none at all.
    private final List<TokenLogprobs> logprobs = new ArrayList<>(0);

    private int count;
    private int read;
    private @Nullable Outcome outcome;
    private volatile boolean aborted;

    Generation(String id, Consumer<Generation> onAbort, Consumer<Generation> onRelease) {
        this.id = id;
        this.onAbort = onAbort;
        this.onRelease = onRelease;
    }

    /// Scheduler thread.
    void emit(int token, Optional<TokenLogprobs> values) {
        lock.lock();
        try {
            if (count == tokens.length) {
                tokens = Arrays.copyOf(tokens, 2 * count);
            }
            values.ifPresent(logprobs::add);
            tokens[count++] = token;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Scheduler thread.
    int[] tokens() {
        lock.lock();
        try {
            return Arrays.copyOf(tokens, count);
        } finally {
            lock.unlock();
        }
    }

    /// Any thread; the first outcome stands.
    ///
    /// @return whether this is it
    boolean end(Outcome how) {
        lock.lock();
        try {
            if (outcome != null) {
                return false;
            }
            outcome = how;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        future.complete(how);
        return true;
    }

    boolean isAborted() {
        return aborted;
    }

    @Override
    public String id() {
        return id;
    }

    @Override
    public Optional<StreamEvent> next(Deadline limit) {
        lock.lock();
        try {
            while (read == count && outcome == null) {
                if (changed.awaitNanos(limit.remainingNanos()) <= 0) {
                    break;
                }
            }
            if (read < count) {
                var values =
                        logprobs.isEmpty()
                                ? Optional.<TokenLogprobs>empty()
                                : Optional.of(logprobs.get(read));
                return Optional.of(new StreamEvent.Token(read, tokens[read++], values));
            }
            return Optional.ofNullable(outcome).map(StreamEvent.Ended::new);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public CompletionStage<Outcome> outcome() {
        return future.minimalCompletionStage();
    }

    @Override
    public Optional<Outcome> await(Deadline limit) {
        lock.lock();
        try {
            while (outcome == null && changed.awaitNanos(limit.remainingNanos()) > 0) {
                // the condition may wake without cause
            }
            return Optional.ofNullable(outcome);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void abort() {
        aborted = true;
        onAbort.accept(this);
    }

    @Override
    public void release() {
        aborted = true;
        onRelease.accept(this);
    }
}
