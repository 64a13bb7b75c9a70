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
import java.util.concurrent.atomic.AtomicReference;

/// One transfer on its way through the candidates of its plan. One attempt at a time: the next
/// begins only once the last has quiesced, since both write to the same memory.
final class RunningTransfer implements AgentTransfer {
    /// What the agent supplies.
    interface Host {
        BackendSlot slot(String backend);

        /// An attempt ended; `nanos` counts from its submission.
        void attempted(
                RunningTransfer transfer, Candidate candidate, TransferOutcome outcome, long nanos);

        /// The whole transfer ended.
        void ended(RunningTransfer transfer, TransferOutcome outcome);
    }

    private final Host host;
    private final TransferSpec spec;
    private final TransferPlan plan;
    private final Iterator<Candidate> candidates;
    private final List<String> attempts = new CopyOnWriteArrayList<>();
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private final AtomicReference<@Nullable Transfer> current = new AtomicReference<>();
    private volatile boolean cancelled;

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
        if (completion.isDone()) {
            return false;
        }
        cancelled = true;
        var running = current.get();
        // Between two attempts nothing runs, and none will be started any more.
        return running == null || running.cancel();
    }

    /// Starts the next candidate, or ends the transfer with `last`.
    void next(Failure last) {
        while (candidates.hasNext()) {
            if (cancelled) {
                end(new TransferOutcome.Cancelled());
                return;
            }
            if (spec.deadline().passed()) {
                end(new TransferOutcome.TimedOut());
                return;
            }
            var candidate = candidates.next();
            attempts.add(candidate.backend());
            if (host.slot(candidate.backend()).start(() -> submit(candidate))) {
                return;
            }
            last =
                    new Failure(
                            ErrorCode.BACKPRESSURE, candidate.backend() + ": its loop has no room");
        }
        end(new TransferOutcome.Failed(last));
    }

    private void submit(Candidate candidate) {
        if (cancelled) { // while it waited for the loop
            end(new TransferOutcome.Cancelled());
            return;
        }
        var name = candidate.backend();
        var local = spec.local().entries().get(name);
        var remote = spec.remote().entries().get(name);
        long started = System.nanoTime();
        Transfer transfer;
        try {
            if (local == null || remote == null) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND, "the lists are not prepared on it any more");
            }
            transfer =
                    SplitTransfer.submit(
                            host.slot(name),
                            new TransferRequest(
                                    spec.operation(),
                                    local.prepared(),
                                    remote.prepared(),
                                    spec.notification(),
                                    spec.deadline(),
                                    spec.tag()));
        } catch (RuntimeException e) { // the border to the backend: nothing was started
            var failure = Failure.of(e);
            failed(
                    candidate,
                    new TransferOutcome.Failed(
                            new Failure(failure.code(), name + ": " + failure.message())),
                    started);
            return;
        }
        current.set(transfer);
        if (cancelled) {
            transfer.cancel();
        }
        transfer.completion()
                .thenAccept(outcome -> attempted(candidate, transfer, outcome, started));
    }

    private void attempted(
            Candidate candidate, Transfer transfer, TransferOutcome outcome, long started) {
        boolean another =
                outcome instanceof TransferOutcome.Failed(var failure, _)
                        && failure.code().retryable()
                        && candidates.hasNext()
                        && !cancelled
                        && !spec.deadline().passed();
        host.attempted(this, candidate, outcome, System.nanoTime() - started);
        if (!another) {
            transfer.quiesced().thenRun(() -> quiesced.complete(null));
            complete(outcome);
            return;
        }
        // Not while the failed attempt may still write; and not beyond the deadline.
        var _ =
                transfer.quiesced()
                        .toCompletableFuture()
                        .copy()
                        .orTimeout(
                                Math.max(1, spec.deadline().remainingNanos()), TimeUnit.NANOSECONDS)
                        .whenComplete((_, late) -> {
                            if (late == null) {
                                current.set(null);
                                next(((TransferOutcome.Failed) outcome).failure());
                            } else {
                                transfer.quiesced().thenRun(() -> quiesced.complete(null));
                                complete(new TransferOutcome.TimedOut());
                            }
                        });
    }

    /// The backend did not take it. Any other may.
    private void failed(Candidate candidate, TransferOutcome.Failed outcome, long started) {
        current.set(null);
        host.attempted(this, candidate, outcome, System.nanoTime() - started);
        next(outcome.failure());
    }

    /// Nothing is in flight.
    private void end(TransferOutcome outcome) {
        complete(outcome);
        quiesced.complete(null);
    }

    private void complete(TransferOutcome outcome) {
        host.ended(this, outcome);
        completion.complete(outcome);
    }
}
