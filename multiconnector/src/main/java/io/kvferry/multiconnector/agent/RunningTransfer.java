// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.jspecify.annotations.Nullable;

import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// One transfer on its way through the candidates of its plan. One attempt at a time: the next
/// begins only once the last has quiesced, since both touch the same memory.
///
/// A notification goes with the attempt that no other can follow. Before that one, data goes alone
/// and is announced once it is in place: an attempt whose notification may have arrived must not be
/// repeated, since the peer may have given the memory to something else.
final class RunningTransfer implements AgentTransfer {
    /// What the agent supplies. Nothing here may throw.
    interface Host {
        BackendSlot slot(String backend);

        /// An attempt ended; `nanos` counts from its submission.
        void attempted(
                RunningTransfer transfer, Candidate candidate, TransferOutcome outcome, long nanos);

        /// The whole transfer ended.
        void ended(RunningTransfer transfer);
    }

    /// One candidate's turn.
    private record Attempt(Candidate candidate, boolean announces, long started) {
        String backend() {
            return candidate.backend();
        }
    }

    private final Host host;
    private final TransferSpec spec;
    private final TransferPlan plan;
    private final Iterator<Candidate> candidates;
    private final List<String> attempts = new CopyOnWriteArrayList<>();
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();

    /// Guards what follows; never held while calling out.
    private final ReentrantLock lock = new ReentrantLock();

    /// What a backend has in hand; null before, between and after.
    private @Nullable Transfer current;

    /// The caller wants it to stop, and whether it was told that it will.
    private boolean asked;

    private boolean promised;

    /// Nothing can stop it any more.
    private boolean settled;

    RunningTransfer(Host host, TransferSpec spec, TransferPlan plan) {
        this.host = host;
        this.spec = spec;
        this.plan = plan;
        this.candidates = plan.usable().iterator();
    }

    TransferSpec spec() {
        return spec;
    }

    @Override
    public TransferPlan plan() {
        return plan;
    }

    @Override
    public List<String> attempts() {
        return List.copyOf(attempts);
    }

    @Override
    public CompletionStage<TransferOutcome> completion() {
        return completion.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiesced.minimalCompletionStage();
    }

    @Override
    public Optional<TransferOutcome> poll() {
        return Optional.ofNullable(completion.getNow(null));
    }

    @Override
    public boolean cancel() {
        Transfer running;
        lock.lock();
        try {
            if (settled) {
                return false;
            }
            asked = true;
            running = current;
            if (running == null) { // nothing runs, and nothing will be started any more
                promised = true;
                return true;
            }
        } finally {
            lock.unlock();
        }
        return running.cancel();
    }

    /// Starts the next candidate, or ends the transfer with `last`.
    void next(Failure last) {
        var why = last;
        while (candidates.hasNext()) {
            if (isPromised()) {
                end(new TransferOutcome.Cancelled());
                return;
            }
            if (spec.deadline().passed()) {
                end(new TransferOutcome.TimedOut());
                return;
            }
            var candidate = candidates.next();
            boolean announces = spec.notification().isPresent() && !candidates.hasNext();
            attempts.add(candidate.backend());
            if (host.slot(candidate.backend()).start(() -> submit(candidate, announces))) {
                return;
            }
            why =
                    new Failure(
                            ErrorCode.BACKPRESSURE, candidate.backend() + ": its loop has no room");
        }
        end(new TransferOutcome.Failed(why));
    }

    private boolean isPromised() {
        lock.lock();
        try {
            return promised;
        } finally {
            lock.unlock();
        }
    }

    private void submit(Candidate candidate, boolean announces) {
        if (isPromised()) { // while it waited for the loop
            end(new TransferOutcome.Cancelled());
            return;
        }
        var attempt = new Attempt(candidate, announces, System.nanoTime());
        Transfer transfer;
        try {
            transfer = SplitTransfer.submit(host.slot(attempt.backend()), request(attempt));
        } catch (RuntimeException | LinkageError e) { // the border to the backend
            refused(attempt, Failure.of(e));
            return;
        }
        boolean stop;
        lock.lock();
        try {
            current = transfer;
            stop = promised;
        } finally {
            lock.unlock();
        }
        if (stop) {
            transfer.cancel();
        }
        transfer.completion().thenAccept(outcome -> attempted(attempt, transfer, outcome));
    }

    private TransferRequest request(Attempt attempt) {
        var local = spec.local().entries().get(attempt.backend());
        var remote = spec.remote().entries().get(attempt.backend());
        if (local == null || remote == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "the lists are not prepared on it any more");
        }
        return new TransferRequest(
                spec.operation(),
                local.prepared(),
                remote.prepared(),
                attempt.announces() ? spec.notification() : Optional.empty(),
                spec.deadline(),
                spec.tag());
    }

    /// The backend did not take it, and nothing was started. Any other may.
    private void refused(Attempt attempt, Failure failure) {
        var why = new Failure(failure.code(), attempt.backend() + ": " + failure.message());
        tell(attempt, new TransferOutcome.Failed(why));
        next(why);
    }

    private void tell(Attempt attempt, TransferOutcome outcome) {
        host.attempted(this, attempt.candidate(), outcome, System.nanoTime() - attempt.started());
    }

    private void attempted(Attempt attempt, Transfer transfer, TransferOutcome outcome) {
        boolean announce =
                outcome instanceof TransferOutcome.Done
                        && spec.notification().isPresent()
                        && !attempt.announces();
        boolean retry =
                outcome instanceof TransferOutcome.Failed(var failure, _)
                        && failure.code().retryable()
                        && candidates.hasNext()
                        && !spec.deadline().passed();
        boolean more;
        lock.lock();
        try {
            more = !promised && (announce || (retry && !asked));
            current = null;
            settled = !more;
        } finally {
            lock.unlock();
        }
        tell(attempt, outcome);
        if (!more) {
            end(outcome, transfer);
            return;
        }
        // Not while the attempt may still touch a buffer; and not beyond the deadline.
        var _ =
                transfer.quiesced()
                        .toCompletableFuture()
                        .copy()
                        .orTimeout(
                                Math.max(1, spec.deadline().remainingNanos()), TimeUnit.NANOSECONDS)
                        .whenComplete((_, late) -> {
                            if (late != null) {
                                end(new TransferOutcome.TimedOut(), transfer);
                            } else if (outcome instanceof TransferOutcome.Failed failed) {
                                next(failed.failure());
                            } else {
                                announce(attempt, outcome);
                            }
                        });
    }

    /// Tells the peer of data that is in place.
    private void announce(Attempt attempt, TransferOutcome done) {
        var slot = host.slot(attempt.backend());
        boolean accepted =
                slot.start(() -> {
                    if (!settle()) {
                        end(new TransferOutcome.Cancelled());
                        return;
                    }
                    try {
                        slot.backend()
                                .notify(
                                        spec.remote().peer().orElseThrow(),
                                        spec.notification().orElseThrow());
                    } catch (RuntimeException | LinkageError e) { // the border to the backend
                        unsettle();
                        refused(attempt, Failure.of(e));
                        return;
                    }
                    end(done);
                });
        if (!accepted) {
            refused(attempt, new Failure(ErrorCode.BACKPRESSURE, "its loop has no room"));
        }
    }

    /// From here on it cannot be stopped.
    ///
    /// @return false if somebody was told that it is
    private boolean settle() {
        lock.lock();
        try {
            settled = !promised;
            return settled;
        } finally {
            lock.unlock();
        }
    }

    private void unsettle() {
        lock.lock();
        try {
            settled = false;
        } finally {
            lock.unlock();
        }
    }

    /// Nothing is in flight.
    private void end(TransferOutcome outcome) {
        complete(outcome);
        quiesced.complete(null);
    }

    /// The last attempt may be touching buffers still.
    private void end(TransferOutcome outcome, Transfer last) {
        complete(outcome);
        last.quiesced().thenRun(() -> quiesced.complete(null));
    }

    private void complete(TransferOutcome outcome) {
        TransferOutcome told;
        lock.lock();
        try {
            settled = true;
            told = promised ? new TransferOutcome.Cancelled() : outcome;
        } finally {
            lock.unlock();
        }
        completion.complete(told);
        host.ended(this);
    }
}
