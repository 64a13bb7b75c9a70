// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.connector.Transfer.Kind;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The transfers of one connector that are open: loads, holds and leases, of KV blocks or of
/// encoder items. Each has a deadline, after which the engine revokes it. It ends when every rank
/// has reported it, and not before: until then a worker may still touch its memory.
///
/// ```
/// open ──every rank has reported──> ended
///   │                                 ^
///   └──deadline, request gone──> revoked ──limit──> unanswered (its memory stays out of use)
/// ```
///
/// A transfer that is unanswered still ends when the last rank reports it. A lease also ends when
/// the connector closes it.
///
/// Threading: scheduler thread only.
public final class Transfers {
    /// Leases that a connector closes long before it reports their save are forgotten at last.
    private static final int REMEMBERED = 8192;

    private final GuardedScheduler<?> connector;
    private final Completions completions;
    private final Telemetry telemetry;
    private final Bounds bounds;
    private final OpenTransfers open = new OpenTransfers();

    /// Closed by the connector, and not yet reported complete to the engine: a connector closes its
    /// leases when it is shown a save's completion, which is before the engine acts on it.
    private final Map<TransferId, Boolean> closed = Completions.bounded(REMEMBERED);

    private final List<Completion> merged = new ArrayList<>();
    private final List<StepReport> reports = new ArrayList<>();

    /// Loads whose first plan is that of this step.
    private final List<Transfer> newLoads = new ArrayList<>();

    private List<TransferId> revoked = new ArrayList<>();
    private long nextDeadline = Long.MAX_VALUE;
    private boolean loadEnded;

    /// How long transfers may take at most.
    ///
    /// @param revoke from the revocation to the last rank's answer
    public record Bounds(Duration load, Duration hold, Duration revoke) {}

    /// @param ranks how many of them report each transfer
    public Transfers(GuardedScheduler<?> connector, int ranks, Bounds bounds, Telemetry telemetry) {
        this.connector = connector;
        this.bounds = bounds;
        this.telemetry = telemetry;
        this.completions = new Completions(ranks, telemetry.metrics(), open::contains);
    }

    /// A step is planned.
    public void beginStep() {
        newLoads.clear();
    }

    public void openLoad(Transfer load) {
        open(load, System.nanoTime() + bounds.load.toNanos());
        newLoads.add(load);
    }

    /// Keeps the memory of an ended request for the connector.
    ///
    /// @return false when the hold has ended already, or its id is in use: the memory must be
    ///   released
    public boolean openHold(Transfer hold, Deadline limit) {
        if (completions.hasEnded(hold.id) || open.isHeld(hold.id)) {
            telemetry.incident(
                    hold.id.subject(),
                    "hold-refused",
                    "engine",
                    hold.id + " has been completed or is held already");
            return false;
        }
        telemetry.metrics().count(Counter.HOLDS_STARTED);
        open(hold, granted(limit));
        return true;
    }

    public void openLease(Transfer lease, Deadline limit) {
        open(lease, granted(limit));
    }

    private void open(Transfer transfer, long deadline) {
        transfer.deadline = deadline;
        watch(deadline);
        open.add(transfer);
    }

    /// A deadline, or the latest that the engine grants.
    private long granted(Deadline wanted) {
        return System.nanoTime() + Math.min(wanted.remainingNanos(), bounds.hold.toNanos());
    }

    /// Moves the deadline of a lease.
    ///
    /// @return false when it has ended or was revoked
    public boolean renew(Transfer lease, Deadline wanted) {
        if (lease.isRevoked() || !open.contains(lease)) {
            return false;
        }
        lease.deadline = granted(wanted);
        watch(lease.deadline);
        return true;
    }

    /// Extends the deadline of a hold; never shortens it.
    ///
    /// @return its deadline now; empty when there is no such hold (any more)
    public Optional<Deadline> prolongHold(TransferId id, Deadline wanted) {
        for (var transfer : open.under(id)) {
            if (transfer.kind == Kind.HOLD && !transfer.isRevoked()) {
                long until = granted(wanted);
                if (until - transfer.deadline > 0) {
                    transfer.deadline = until; // the watch on the earlier one finds this one
                }
                return Optional.of(transfer.deadline());
            }
        }
        return Optional.empty();
    }

    /// The connector is done with a lease.
    public void close(Transfer lease) {
        if (!lease.isRevoked() && open.remove(lease)) {
            if (!open.contains(lease.id)) {
                closed.put(lease.id, true);
            }
            lease.ended(new Completion.Completed(0));
        }
    }

    private void watch(long deadline) {
        nextDeadline =
                nextDeadline == Long.MAX_VALUE || deadline - nextDeadline < 0
                        ? deadline
                        : nextDeadline;
    }

    /// Nanoseconds until [#expire] has something to do; [Long#MAX_VALUE] when nothing is watched.
    public long untilDeadline(long now) {
        return nextDeadline == Long.MAX_VALUE ? Long.MAX_VALUE : nextDeadline - now;
    }

    /// Revokes what is past its deadline, and gives up waiting for answers to old revocations.
    public void expire(long now) {
        if (nextDeadline == Long.MAX_VALUE || now - nextDeadline < 0) {
            return;
        }
        nextDeadline = Long.MAX_VALUE;
        for (var transfer : open.all()) {
            if (!transfer.isRevoked()) {
                expire(transfer, now);
            } else if (!transfer.unanswered) {
                awaitAnswer(transfer, now);
            }
        }
    }

    private void expire(Transfer transfer, long now) {
        if (now - transfer.deadline < 0) {
            watch(transfer.deadline);
            return;
        }
        if (transfer.kind != Kind.LOAD) {
            telemetry
                    .metrics()
                    .count(
                            transfer.kind == Kind.HOLD
                                    ? Counter.HOLDS_EXPIRED
                                    : Counter.LEASES_EXPIRED);
        }
        if (transfer.kind == Kind.LEASE && completions.hasEnded(transfer.id)) {
            open.remove(transfer); // every rank has reported the save already
            transfer.ended(new Completion.Completed(0));
            return;
        }
        telemetry.incident(
                transfer.id.subject(),
                transfer.kind.expired,
                "engine",
                transfer.id
                        + (transfer.kind == Kind.HOLD
                                ? " was not fetched in time; its memory is freed"
                                : " was not completed in time"));
        revoke(transfer);
    }

    private void awaitAnswer(Transfer transfer, long now) {
        long due = transfer.revokedAt + bounds.revoke.toNanos();
        if (now - due < 0) {
            watch(due);
            return;
        }
        open.unanswered(transfer);
        telemetry.incident(
                transfer.id.subject(),
                "quarantine",
                "engine",
                transfer.id
                        + " was revoked, but not every rank has answered; its memory stays out of use until then");
        transfer.unanswered(timedOut(transfer.id));
    }

    private static Failure timedOut(TransferId id) {
        return new Failure(
                ErrorCode.TIMEOUT,
                id + " was revoked: not completed within the engine's load limit");
    }

    /// Ends the connector's right to a transfer; its memory comes back when every rank has
    /// answered.
    public void revoke(Transfer transfer) {
        if (!transfer.isRevoked()) {
            transfer.revokedAt = System.nanoTime() | 1;
            revoked.add(transfer.id);
            telemetry.metrics().count(Counter.REVOCATIONS);
            watch(transfer.revokedAt + bounds.revoke.toNanos());
        }
    }

    /// As [#revoke], but only after the plan of this step, in which the load may be.
    public void revokeAfterPlan(Transfer load) {
        load.deadline = System.nanoTime();
        watch(load.deadline);
    }

    /// Revokes the holds of a request before their deadline: their consumer will not come.
    public void revokeHolds(String requestId) {
        for (var transfer : open.all()) {
            if (transfer.kind == Kind.HOLD && transfer.id.subject().equals(requestId)) {
                revoke(transfer);
            }
        }
    }

    public void revokeAll() {
        open.all().forEach(this::revoke);
    }

    /// The connector made no plan: the loads that it was to start with it will never come.
    public void planFailed() {
        newLoads.forEach(this::revoke);
    }

    /// Transfers to list as revoked in the next plan. Tells the connector's scheduler half first.
    public List<TransferId> takeRevoked() {
        if (revoked.isEmpty()) {
            return List.of();
        }
        var taken = revoked;
        revoked = new ArrayList<>();
        taken.forEach(connector::onRevoked);
        return taken;
    }

    public boolean hasRevoked() {
        return !revoked.isEmpty();
    }

    /// The worker halves were closed on every rank, so open transfers cannot continue. The next
    /// [#takeIn] ends them.
    public void workersClosed(Failure why, int ranks) {
        var failed = new Completion.Failed(why, List.of());
        for (var id : open.ids()) {
            for (int rank = 0; rank < ranks; rank++) {
                completions.add(id, rank, failed, merged);
            }
        }
        for (var transfer : open.all()) {
            if (!transfer.isRevoked()) {
                transfer.revokedAt = System.nanoTime() | 1; // or a lease would wait to be closed
            }
        }
    }

    /// New halves take over, which may use the same ids. Nothing is open.
    public void reset() {
        completions.clear();
        closed.clear();
        merged.clear();
        newLoads.clear();
    }

    /// Takes in the reports of all ranks, by rank, and ends what they complete.
    public void takeIn(long step, List<StepReport> byRank) {
        if (!connector.present()) {
            return;
        }
        reports.clear();
        for (int rank = 0; rank < byRank.size(); rank++) {
            var report = ofRank(byRank.get(rank), rank);
            reports.add(report);
            completions.add(report, merged);
            connector.observe(rank, report.stats(), report.events());
        }
        var settled = connector.settle(new MergedReport(step, merged, reports));
        merged.clear();
        for (var completion : settled.completions()) {
            if (!complete(completion)) {
                telemetry.metrics().count(Counter.COMPLETIONS_UNMATCHED);
            }
        }
        for (var load : newLoads) {
            if (open.contains(load)) {
                load.late();
            }
        }
    }

    /// Replaces a wrong rank in a report by the rank that sent it.
    private StepReport ofRank(StepReport report, int rank) {
        if (report.rank() == rank) {
            return report;
        }
        telemetry.defect(
                "", connector.instance(), "rank " + rank + " reported as rank " + report.rank());
        return new StepReport(
                rank,
                report.step(),
                report.completions(),
                report.payload(),
                report.stats(),
                report.events());
    }

    /// @return whether anything is open under this id, or was until the connector closed it
    private boolean complete(Completion completion) {
        var id = completion.id();
        boolean known = closed.remove(id) != null;
        for (var transfer : List.copyOf(open.under(id))) {
            known = true;
            if (transfer.kind != Kind.LEASE || transfer.isRevoked()) { // else it will be closed
                open.remove(transfer);
                end(transfer, completion.result());
            }
        }
        return known;
    }

    private void end(Transfer transfer, Completion.Result result) {
        if (transfer.kind == Kind.HOLD) {
            telemetry.metrics().count(Counter.HOLDS_COMPLETED);
        }
        loadEnded |= transfer.kind == Kind.LOAD;
        boolean gaveUp = transfer.kind == Kind.LOAD && result instanceof Completion.Revoked;
        transfer.ended(gaveUp ? new Completion.Failed(timedOut(transfer.id), List.of()) : result);
    }

    /// Ends all transfers without waiting for answers, because the workers are lost.
    public void discardAll() {
        for (var transfer : open.all()) {
            open.remove(transfer);
            if (transfer.kind == Kind.HOLD) {
                telemetry.metrics().count(Counter.HOLDS_COMPLETED);
            }
            transfer.discard();
        }
        revoked = new ArrayList<>();
    }

    /// Whether a load has ended since the last call, so that waiting requests can continue.
    public boolean takeLoadEnded() {
        boolean any = loadEnded;
        loadEnded = false;
        return any;
    }

    /// What is open, for a log.
    public String describe() {
        return open.describe();
    }

    /// Whether the engine has to step although no request is live.
    public boolean isOpen() {
        return !open.isEmpty();
    }

    public int held() {
        return open.held();
    }

    /// Transfers that were opened before that time and may keep their memory for long: holds that
    /// were not fetched, and transfers whose revocation is unanswered.
    public List<Transfer> stale(long openedBefore) {
        return open.stale(openedBefore);
    }

    /// Blocks of transfers whose revocation was not answered in time.
    public int quarantinedBlocks() {
        return open.quarantinedBlocks();
    }
}
