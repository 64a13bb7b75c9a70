// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.TransferPlan.Candidate;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.ReentrantLock;

/// One transfer on its way through the candidates of its plan. One attempt at a time: the next
/// begins only once the last has quiesced, since both touch the same memory.
///
/// Only the last possible attempt carries the notification. Earlier attempts transfer data alone,
/// and the notification is sent once the data is in place. An attempt whose notification may have
/// arrived must not be repeated, because the peer may already have reused the memory.
final class RunningTransfer implements Transfer {
    /// The agent's callbacks. None may throw.
    interface Host {
        OpenBackend slot(String backend);

        /// An attempt ended; `nanos` counts from its submission.
        void attempted(
                RunningTransfer transfer, Candidate candidate, TransferOutcome outcome, long nanos);

        /// The whole transfer ended.
        void ended(TransferRequest request);
    }

    /// One candidate's turn.
    private record Attempt(Candidate candidate, boolean announces, long started) {
        String backend() {
            return candidate.backend();
        }
    }

    private static final Logger LOG = LoggerFactory.getLogger(RunningTransfer.class);

    /// Made before the heap is full.
    static final TransferOutcome NO_MEMORY =
            new TransferOutcome.Failed(
                    new Failure(ErrorCode.INTERNAL, "the agent has no memory to go on with it"));

    private final Host host;
    private final TransferRequest request;
    private final TransferPlan plan;
    private final Deque<Candidate> candidates;

    /// Candidates whose queue was full when they were tried.
    private final Deque<Candidate> busy = new ArrayDeque<>();

    private final List<String> attempts = new CopyOnWriteArrayList<>();
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();

    /// Guards the fields below. Never held while calling a backend or the host.
    private final ReentrantLock lock = new ReentrantLock();

    /// The backend's transfer of the current attempt; null when no attempt is in flight.
    private @Nullable Transfer current;

    /// `asked`: cancellation was requested. `promised`: [#cancel] returned true without a running
    /// attempt, so the outcome must be Cancelled.
    private boolean asked;

    private boolean promised;

    /// It can no longer be stopped.
    private boolean settled;

    /// Whether any backend took it.
    private volatile boolean taken;

    /// The thread that is within [#start].
    private volatile @Nullable Thread starter;

    RunningTransfer(Host host, TransferRequest request, TransferPlan plan) {
        this.host = host;
        this.request = request;
        this.plan = plan;
        this.candidates = new ArrayDeque<>(plan.usable());
    }

    TransferRequest request() {
        return request;
    }

    /// Why it goes the way it goes, as of the moment it was submitted.
    TransferPlan plan() {
        return plan;
    }

    /// Why no backend took it, if it has ended for that; nothing was started then.
    Optional<Failure> refusal() {
        // The outcome first: another thread may take it and fail between the two looks.
        return completion.getNow(null) instanceof TransferOutcome.Failed(var failure, _) && !taken
                ? Optional.of(failure)
                : Optional.empty();
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
            if (running == null) { // nothing in flight; next() checks the flag
                promised = true;
                return true;
            }
        } finally {
            lock.unlock();
        }
        return running.cancel();
    }

    /// Starts the first candidate. Until a backend has accepted the transfer, full queues are
    /// reported to the caller as a refusal; the transfer does not wait for one.
    void start() {
        starter = Thread.currentThread();
        try {
            next(new Failure(ErrorCode.UNSUPPORTED, "nothing was tried"));
        } finally {
            starter = null;
        }
    }

    private boolean isPatient() {
        return taken || Thread.currentThread() != starter;
    }

    /// Whether another candidate can follow: one not tried yet, or one that had no room.
    private boolean more() {
        return !candidates.isEmpty() || (isPatient() && !busy.isEmpty());
    }

    /// Starts the next candidate, or ends the transfer with `last`.
    private void next(Failure last) {
        try {
            tryNext(last);
        } catch (RuntimeException | Error e) { // where the heap is full
            giveUp(e);
        }
    }

    private void giveUp(Throwable why) {
        LoopReport.ERROR.log(LOG, "a transfer cannot go on", why);
        if (!isInFlight()) {
            end(NO_MEMORY);
        }
    }

    private void tryNext(Failure last) {
        var why = last;
        while (more()) {
            if (isPromised()) {
                end(new TransferOutcome.Cancelled());
                return;
            }
            if (request.deadline().passed()) {
                end(new TransferOutcome.TimedOut());
                return;
            }
            boolean again = candidates.isEmpty();
            var candidate = again ? busy.removeFirst() : candidates.removeFirst();
            boolean none = candidates.isEmpty() && busy.isEmpty();
            boolean announces = request.notification().isPresent() && none;
            attempts.add(candidate.backend());
            var slot = host.slot(candidate.backend());
            if (slot.post(new Turn(slot, candidate, announces, again || none), isPatient())) {
                return;
            }
            why = slot.unstarted();
        }
        end(new TransferOutcome.Failed(why));
    }

    /// One candidate, queued for its backend.
    ///
    /// @param waits whether to wait for this candidate's queue, because no other candidate is left
    private final class Turn implements OwnerLoop.Post {
        private final OpenBackend slot;
        private final Candidate candidate;
        private final boolean announces;
        private final boolean waits;

        Turn(OpenBackend slot, Candidate candidate, boolean announces, boolean waits) {
            this.slot = slot;
            this.candidate = candidate;
            this.announces = announces;
            this.waits = waits;
        }

        @Override
        public boolean isOver() {
            return isPromised() || request.deadline().passed();
        }

        @Override
        public boolean tryNow(boolean canWait) {
            try {
                return attempt(canWait);
            } catch (RuntimeException | Error e) { // where the heap is full
                giveUp(e);
                return true;
            }
        }

        private boolean attempt(boolean canWait) {
            if (completion.isDone() || isInFlight()) {
                return true;
            }
            if (isPromised()) {
                end(new TransferOutcome.Cancelled());
                return true;
            }
            if (request.deadline().passed()) {
                end(new TransferOutcome.TimedOut());
                return true;
            }
            var attempt = new Attempt(candidate, announces, System.nanoTime());
            Transfer transfer;
            try {
                transfer = SplitTransfer.submit(slot, part(attempt));
            } catch (RuntimeException | Error e) { // the border to the backend
                var failure = Failure.of(e);
                if (failure.code() == ErrorCode.BACKPRESSURE) {
                    if (canWait && waits) {
                        return false;
                    }
                    busy.addLast(candidate);
                }
                refused(attempt, failure);
                return true;
            }
            follow(attempt, transfer);
            return true;
        }
    }

    private boolean isInFlight() {
        lock.lock();
        try {
            return current != null;
        } finally {
            lock.unlock();
        }
    }

    private boolean isPromised() {
        lock.lock();
        try {
            return promised;
        } finally {
            lock.unlock();
        }
    }

    private void follow(Attempt attempt, Transfer transfer) {
        taken = true;
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
        Attached.to(transfer.completion(), outcome -> attempted(attempt, transfer, outcome));
    }

    /// The request as the backend knows it.
    private TransferRequest part(Attempt attempt) {
        return new TransferRequest(
                request.operation(),
                ((AgentPrepared) request.local()).require(attempt.backend()).prepared(),
                ((AgentPrepared) request.remote()).require(attempt.backend()).prepared(),
                attempt.announces() ? request.notification() : Optional.empty(),
                request.deadline(),
                request.tag());
    }

    /// The backend rejected the request without starting anything, so any other candidate may be
    /// tried.
    private void refused(Attempt attempt, Failure failure) {
        var why = new Failure(failure.code(), attempt.backend() + ": " + failure.message());
        tell(attempt, new TransferOutcome.Failed(why));
        next(why);
    }

    private void tell(Attempt attempt, TransferOutcome outcome) {
        try {
            host.attempted(
                    this, attempt.candidate(), outcome, System.nanoTime() - attempt.started());
        } catch (RuntimeException | Error e) { // figures must not keep a transfer from its end
            LoopReport.WARN.log(LOG, "an attempt of {} is not counted", attempt.backend(), e);
        }
    }

    private void attempted(Attempt attempt, Transfer transfer, TransferOutcome outcome) {
        boolean announce =
                outcome instanceof TransferOutcome.Done
                        && request.notification().isPresent()
                        && !attempt.announces();
        boolean retry =
                outcome instanceof TransferOutcome.Failed(var failure, _)
                        && failure.code().retryable()
                        && more()
                        && !request.deadline().passed();
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
        try {
            goOnWhenQuiet(attempt, transfer, outcome);
        } catch (RuntimeException | Error e) { // where the heap is full
            end(NO_MEMORY, transfer);
        }
    }

    /// Waits until the attempt no longer touches the buffers, at most until the deadline.
    private void goOnWhenQuiet(Attempt attempt, Transfer transfer, TransferOutcome outcome) {
        var inTime = new CompletableFuture<Boolean>();
        var limit =
                AgentClock.after(
                        Math.max(0, request.deadline().remainingNanos()),
                        () -> inTime.complete(false));
        inTime.thenAccept(quiet -> {
            limit.cancel(false);
            if (!quiet) {
                end(new TransferOutcome.TimedOut(), transfer);
            } else if (outcome instanceof TransferOutcome.Failed failed) {
                next(failed.failure());
            } else {
                tryAnnounce(attempt, outcome);
            }
        });
        transfer.quiesced().thenRun(() -> inTime.complete(true));
    }

    private void tryAnnounce(Attempt attempt, TransferOutcome done) {
        try {
            announce(attempt, done);
        } catch (RuntimeException | Error e) { // where the heap is full
            giveUp(e);
        }
    }

    /// Notifies the peer that the data is in place.
    private void announce(Attempt attempt, TransferOutcome done) {
        var slot = host.slot(attempt.backend());
        boolean accepted =
                slot.start(() -> {
                    try {
                        sendNotification(slot, attempt, done);
                    } catch (RuntimeException | Error e) { // where the heap is full
                        giveUp(e);
                    }
                });
        if (!accepted) {
            refused(attempt, slot.unstarted());
        }
    }

    private void sendNotification(OpenBackend slot, Attempt attempt, TransferOutcome done) {
        if (!settle()) {
            end(new TransferOutcome.Cancelled());
            return;
        }
        try {
            slot.backend()
                    .notify(
                            request.remote().peer().orElseThrow(),
                            request.notification().orElseThrow());
        } catch (RuntimeException | Error e) { // the border to the backend
            unsettle();
            refused(attempt, Failure.of(e));
            return;
        }
        end(done);
    }

    /// Marks the transfer as no longer cancellable.
    ///
    /// @return false when [#cancel] has already promised the caller a Cancelled outcome
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

    /// Called when nothing is in flight.
    private void end(TransferOutcome outcome) {
        try {
            complete(outcome);
        } finally {
            quiesced.complete(null);
        }
    }

    /// Completes the transfer; it is quiesced only once the last attempt is, which may still touch
    /// buffers.
    private void end(TransferOutcome outcome, Transfer last) {
        try {
            complete(outcome);
        } finally {
            Attached.to(last.quiesced(), _ -> quiesced.complete(null));
        }
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
        if (completion.complete(told)) {
            host.ended(request);
        }
    }
}
