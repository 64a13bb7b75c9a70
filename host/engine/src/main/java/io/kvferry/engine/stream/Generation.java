// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;

import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The client's end of a request: the scheduler puts tokens and the outcome in, the client takes
/// them out.
///
/// Threading: any thread.
public final class Generation implements RequestHandle, ReaderWaker.Readers {
    private static final int NOBODY = -1;

    private final String id;
    private final Consumer<Generation> onAbort;
    private final Consumer<Generation> onRelease;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final CompletableFuture<Outcome> future = new CompletableFuture<>();
    final ReaderWaker waker;

    /// The request's whole sequence; what it has published can be read here.
    private final TokenSequence sequence;

    private final int offset;

    /// One for each token, or none at all; written before the token is published.
    private @Nullable TokenLogprobs[] logprobs = new TokenLogprobs[0];

    /// Of the prompt's tokens from the second one on; written before a token is published, or the
    /// outcome.
    private @Nullable TokenLogprobs[] promptLogprobs = new TokenLogprobs[0];

    private int read;

    /// Tokens that a waiting reader has already read; NOBODY while no reader waits.
    private volatile int awaitedBeyond = NOBODY;

    /// Whether the waker has it among those who wait.
    private final AtomicBoolean listed = new AtomicBoolean();

    private @Nullable Outcome outcome;
    private volatile boolean aborted;

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

    /// Takes the log-probabilities of the token that is appended to the sequence next. Scheduler
    /// thread.
    public void logprobs(TokenLogprobs values) {
        int at = sequence.published();
        if (logprobs.length <= at) {
            logprobs = Arrays.copyOf(logprobs, 2 * (at + 1));
        }
        logprobs[at] = values;
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
            if (sequence.published() == 0 && outcome == null) {
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

    @Override
    public boolean haveNews() {
        return awaitedBeyond < sequence.published();
    }

    @Override
    public void wake() {
        listed.set(false); // before the lock: readers that were listed until now wait by then
        lock.lock();
        try {
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
        return sequence.generated(sequence.published());
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
            awaitedBeyond = NOBODY;
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
            if (read == sequence.published() && outcome == null) {
                awaitToken(limit);
            }
            // no token follows an outcome, so tokens are checked first
            if (read < sequence.published()) {
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
        try {
            long left = 1;
            while (read == sequence.published() && outcome == null && left > 0) {
                awaitedBeyond = read;
                list();
                VarHandle.fullFence();
                if (read == sequence.published()) { // else it came before anybody saw that we wait
                    left = changed.awaitNanos(limit.remainingNanos());
                }
            }
        } finally {
            awaitedBeyond = NOBODY;
        }
    }

    private void list() {
        if (!listed.compareAndSet(false, true)) {
            return;
        }
        try {
            waker.add(this);
        } catch (Throwable e) { // otherwise it would never be listed again
            listed.set(false);
            throw e;
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
