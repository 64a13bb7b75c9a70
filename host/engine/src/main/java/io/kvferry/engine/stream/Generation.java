// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
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
public final class Generation implements RequestHandle {
    private static final VarHandle COUNT = countHandle();

    private final String id;
    private final Consumer<Generation> onAbort;
    private final Consumer<Generation> onRelease;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final CompletableFuture<Outcome> future = new CompletableFuture<>();
    private final ReaderWaker waker;

    /// The request's whole sequence; a token is in it before `count` says so.
    private final TokenSequence sequence;

    private final int offset;

    /// One for each token, or none at all; written before `count`, as the sequence is.
    private @Nullable TokenLogprobs[] logprobs = new TokenLogprobs[0];

    /// Of the prompt's tokens from the second one on; written before `count` and `outcome` are.
    private @Nullable TokenLogprobs[] promptLogprobs = new TokenLogprobs[0];

    private volatile int count;

    private int read;

    /// Whether a reader waits for a token.
    private volatile boolean waiting;

    /// Whether the waker has been told and has not come yet.
    private volatile boolean told;

    private @Nullable Outcome outcome;
    private volatile boolean aborted;

    private static VarHandle countHandle() {
        try {
            return MethodHandles.lookup().findVarHandle(Generation.class, "count", int.class);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("a field of this class", e);
        }
    }

    public Generation(
            String id,
            TokenSequence sequence,
            ReaderWaker waker,
            Consumer<Generation> onAbort,
            Consumer<Generation> onRelease) {
        this.id = id;
        this.sequence = sequence;
        this.offset = sequence.count();
        this.waker = waker;
        this.onAbort = onAbort;
        this.onRelease = onRelease;
    }

    /// Publishes the next token of the sequence, without a lock. A reader that waits for it is
    /// woken by [#wakeReader], which must follow. Scheduler thread.
    public void emit(Optional<TokenLogprobs> values) {
        int published = count + 1;
        if (values.isPresent()) {
            if (logprobs.length < published) {
                logprobs = Arrays.copyOf(logprobs, 2 * published);
            }
            logprobs[count] = values.get();
        }
        COUNT.setRelease(this, published); // one fence for a step, not one for each token
    }

    /// Takes log-probabilities of consecutive prompt tokens. A request that starts over brings them
    /// again. Scheduler thread.
    ///
    /// @param position of the first of them
    public void promptLogprobs(int position, List<TokenLogprobs> values) {
        if (promptLogprobs.length == 0) {
            promptLogprobs = new TokenLogprobs[offset - 1];
        }
        for (int i = 0; i < values.size(); i++) {
            promptLogprobs[position - 1 + i] = values.get(i);
        }
    }

    @Override
    public List<TokenLogprobs> promptLogprobs() {
        lock.lock();
        try {
            if (count == 0 && outcome == null) {
                throw new IllegalStateException("the prompt is not computed yet");
            }
            var values = new ArrayList<TokenLogprobs>(promptLogprobs.length);
            for (var value : promptLogprobs) {
                if (value != null) {
                    values.add(value);
                }
            }
            return values;
        } finally {
            lock.unlock();
        }
    }

    /// Has the reader woken, if one waits. Scheduler thread, after [ReaderWaker#hasReaders], which
    /// puts this look behind the counts that were written before.
    public void wakeReader() {
        if (waiting && !told) {
            told = true;
            waker.add(this);
        }
    }

    /// Wakes whoever waits for a token.
    void wake() {
        told = false;
        lock.lock();
        try {
            waiting = false;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Prompt and generated tokens, to which the scheduler thread appends.
    public TokenSequence sequence() {
        return sequence;
    }

    /// Scheduler thread.
    public int[] tokens() {
        return sequence.generated(count);
    }

    /// Any thread; the first outcome stands.
    ///
    /// @return whether this is it
    public boolean end(Outcome how) {
        lock.lock();
        try {
            if (outcome != null) {
                return false;
            }
            outcome = how;
            waiting = false;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        future.complete(how);
        return true;
    }

    public boolean isAborted() {
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
            if (read == count && outcome == null) {
                awaitToken(limit);
            }
            // no token follows an outcome, so that nothing is missed where there is one
            if (read < count) {
                var values =
                        read < logprobs.length
                                ? Optional.ofNullable(logprobs[read])
                                : Optional.<TokenLogprobs>empty();
                return Optional.of(
                        new StreamEvent.Token(read, sequence.get(offset + read++), values));
            }
            return Optional.ofNullable(outcome).map(StreamEvent.Ended::new);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    private void awaitToken(Deadline limit) throws InterruptedException {
        waker.enter();
        try {
            long left = 1;
            while (read == count && outcome == null && left > 0) {
                waiting = true;
                if (read == count) { // else it came before the scheduler could see that we wait
                    left = changed.awaitNanos(limit.remainingNanos());
                }
            }
        } finally {
            waker.leave();
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
