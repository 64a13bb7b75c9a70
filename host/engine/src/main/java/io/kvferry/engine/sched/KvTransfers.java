// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;

/// The rights that the KV connector has on the engine's blocks: loads, holds and leases. Each has a
/// deadline, after which it is revoked; its blocks come back when every rank has answered, not
/// before.
final class KvTransfers {
    private final CachePool pool;
    private final Completions completions;
    private final Telemetry telemetry;
    private final long loadNanos;
    private final long holdNanos;
    private final long revokeNanos;
    private final BiConsumer<RequestState, Completion.Result> onLoaded;
    private final Map<TransferId, Right> loads = new HashMap<>();
    private final Map<TransferId, Right> holds = new HashMap<>();
    private final Leases leases;
    private List<TransferId> revoked = new ArrayList<>();
    private long nextDeadline = Long.MAX_VALUE;

    /// Loads and holds whose revocation was not answered in time.
    private int quarantined;

    /// A load or a hold.
    static final class Right {
        final TransferId id;
        final @Nullable RequestState loading;
        long deadline;

        /// The blocks, once their request no longer has them.
        @Nullable RequestBlocks kept;

        long revokedAt;
        boolean abandoned;
        boolean quarantined;

        Right(
                TransferId id,
                @Nullable RequestState loading,
                @Nullable RequestBlocks kept,
                long deadline) {
            this.id = id;
            this.loading = loading;
            this.kept = kept;
            this.deadline = deadline;
        }

        boolean isRevoked() {
            return revokedAt != 0;
        }
    }

    KvTransfers(
            CachePool pool,
            Completions completions,
            Telemetry telemetry,
            Limits limits,
            BiConsumer<RequestState, Completion.Result> onLoaded) {
        this.pool = pool;
        this.completions = completions;
        this.telemetry = telemetry;
        this.loadNanos = limits.load().toNanos();
        this.holdNanos = limits.hold().toNanos();
        this.revokeNanos = limits.revoke().toNanos();
        this.onLoaded = onLoaded;
        this.leases =
                new Leases(
                        pool,
                        completions,
                        telemetry,
                        holdNanos,
                        this::watch,
                        id -> revoked.add(id));
    }

    Leases leases() {
        return leases;
    }

    /// A load begins.
    void load(TransferId id, RequestState request) {
        telemetry.metrics.count(Counter.LOADS_STARTED);
        var right = new Right(id, request, null, System.nanoTime() + loadNanos);
        loads.put(id, right);
        watch(right.deadline);
    }

    boolean isLoading(TransferId id) {
        return loads.containsKey(id);
    }

    /// The request no longer waits for its load: the blocks stay here until every rank has let go
    /// of them.
    void abandon(TransferId id, RequestBlocks blocks) {
        var right = loads.get(id);
        if (right == null) {
            blocks.release(pool);
            return;
        }
        right.abandoned = true;
        right.kept = blocks.moveOut();
        revoke(right);
    }

    /// The connector refused a load, but may have planned it: as [#abandon], but revoked after that
    /// plan.
    void refuse(TransferId id, RequestBlocks blocks) {
        var right = loads.get(id);
        if (right != null) {
            right.abandoned = true;
            right.kept = blocks.moveOut();
            right.deadline = System.nanoTime();
            watch(right.deadline);
        }
    }

    /// The blocks of an ended request stay for the connector.
    void hold(TransferId id, Duration limit, RequestBlocks blocks) {
        if (completions.hasEnded(id) || holds.containsKey(id)) {
            telemetry.incident(
                    id.subject(),
                    "hold-refused",
                    "engine",
                    id + " has been completed or is held already");
            blocks.release(pool);
            return;
        }
        telemetry.metrics.count(Counter.HOLDS_STARTED);
        long deadline = System.nanoTime() + Limits.nanos(limit, holdNanos);
        var right = new Right(id, null, blocks.moveOut(), deadline);
        holds.put(id, right);
        watch(right.deadline);
    }

    /// Moves the deadline of a hold, if that is later; empty when there is none any more.
    Optional<Deadline> renewHold(TransferId id, Deadline wanted) {
        var right = holds.get(id);
        if (right == null || right.isRevoked()) {
            return Optional.empty();
        }
        long granted = System.nanoTime() + Math.min(wanted.remainingNanos(), holdNanos);
        if (granted - right.deadline > 0) {
            right.deadline = granted; // the watch on the earlier one finds this one
        }
        return Optional.of(new Deadline(right.deadline));
    }

    private void watch(long deadline) {
        nextDeadline =
                nextDeadline == Long.MAX_VALUE || deadline - nextDeadline < 0
                        ? deadline
                        : nextDeadline;
    }

    /// Nanoseconds until [#expire] has something to do; [Long#MAX_VALUE] when nothing is watched.
    long untilDeadline(long now) {
        return nextDeadline == Long.MAX_VALUE ? Long.MAX_VALUE : nextDeadline - now;
    }

    /// Revokes what is past its deadline, and counts as quarantined what was revoked long ago.
    void expire(long now) {
        if (nextDeadline == Long.MAX_VALUE || now - nextDeadline < 0) {
            return;
        }
        nextDeadline = Long.MAX_VALUE;
        for (var right : List.copyOf(loads.values())) {
            expire(right, now, "deadline", "was not completed in time");
        }
        for (var right : List.copyOf(holds.values())) {
            if (expire(
                    right, now, "hold-expired", "was not fetched in time; its blocks are freed")) {
                telemetry.metrics.count(Counter.HOLDS_EXPIRED);
            }
        }
        leases.expire(now);
    }

    private boolean expire(Right right, long now, String kind, String what) {
        if (!right.isRevoked()) {
            if (now - right.deadline >= 0) {
                telemetry.incident(right.id.subject(), kind, "engine", right.id + " " + what);
                revoke(right);
                return true;
            }
            watch(right.deadline);
        } else if (!right.quarantined) {
            right.quarantined = now - right.revokedAt >= revokeNanos;
            if (right.quarantined) {
                quarantined++;
                telemetry.incident(
                        right.id.subject(),
                        "quarantine",
                        "engine",
                        right.id
                                + " was revoked, but not every rank has answered; its blocks stay out of use until then");
                goOnWithout(right);
            } else {
                watch(right.revokedAt + revokeNanos);
            }
        }
        return false;
    }

    /// The request of a load whose revocation is not answered waits no longer; its blocks do.
    private void goOnWithout(Right load) {
        var request = load.loading;
        if (request == null || load.abandoned) {
            return;
        }
        load.abandoned = true;
        load.kept = request.blocks.moveOut();
        onLoaded.accept(request, timedOut(load));
    }

    private void revoke(Right right) {
        if (right.isRevoked()) {
            return;
        }
        right.revokedAt = System.nanoTime() | 1;
        revoked.add(right.id);
        telemetry.metrics.count(Counter.REVOCATIONS);
        watch(right.revokedAt + revokeNanos);
    }

    /// Revokes the holds of a request before their deadline: their consumer will not come.
    void revokeHolds(String requestId) {
        holds.values().stream()
                .filter(right -> right.id.subject().equals(requestId))
                .forEach(this::revoke);
    }

    /// Revokes everything that is open, because the engine closes.
    void revokeAll() {
        loads.values().forEach(this::revoke);
        holds.values().forEach(this::revoke);
        leases.revokeAll();
    }

    /// Revokes a load at once, because the connector cannot be expected to do it.
    void revokeLoad(TransferId id) {
        var right = loads.get(id);
        if (right != null) {
            revoke(right);
        }
    }

    /// What the next step has to name as revoked.
    List<TransferId> takeRevoked() {
        if (revoked.isEmpty()) {
            return List.of();
        }
        var taken = revoked;
        revoked = new ArrayList<>();
        return taken;
    }

    boolean hasRevoked() {
        return !revoked.isEmpty();
    }

    /// A transfer has ended on all ranks.
    ///
    /// @return whether anybody here had it open
    boolean complete(Completion completion) {
        var id = completion.id();
        var load = loads.remove(id);
        if (load != null) {
            quarantined -= load.quarantined ? 1 : 0;
            endLoad(load, completion.result());
        }
        var hold = holds.remove(id);
        if (hold != null) {
            quarantined -= hold.quarantined ? 1 : 0;
            telemetry.metrics.count(Counter.HOLDS_COMPLETED);
            releaseKept(hold);
        }
        boolean leased = leases.complete(id);
        return load != null || hold != null || leased;
    }

    private void endLoad(Right load, Completion.Result result) {
        boolean completed = result instanceof Completion.Completed;
        telemetry.metrics.count(completed ? Counter.LOADS_COMPLETED : Counter.LOADS_FAILED);
        var request = load.loading;
        if (load.abandoned || request == null) {
            releaseKept(load);
            return;
        }
        onLoaded.accept(request, result instanceof Completion.Revoked ? timedOut(load) : result);
    }

    private static Completion.Result timedOut(Right load) {
        return new Completion.Failed(
                new Failure(
                        ErrorCode.TIMEOUT,
                        load.id + " was revoked: not completed within the engine's load limit"),
                List.of());
    }

    private void releaseKept(Right right) {
        if (right.kept != null) {
            right.kept.release(pool);
        }
    }

    /// Takes all blocks back without asking anybody, because the workers are gone.
    void releaseAll() {
        loads.values().forEach(this::releaseKept);
        loads.clear();
        telemetry.metrics.add(Counter.HOLDS_COMPLETED, holds.size());
        holds.values().forEach(this::releaseKept);
        holds.clear();
        quarantined = 0;
        leases.endAll();
        revoked = new ArrayList<>();
    }

    /// Ends everything on one rank, which has given its worker half up.
    void failRank(int rank, Failure failure, List<Completion> merged) {
        var open = new ArrayList<TransferId>();
        open.addAll(loads.keySet());
        open.addAll(holds.keySet());
        open.addAll(leases.ids());
        var failed = new Completion.Failed(failure, List.of());
        for (var id : open) {
            completions.add(id, rank, failed, merged);
        }
        leases.abandon();
    }

    /// Whether the engine has to step although no request is live.
    boolean isOpen() {
        return !loads.isEmpty() || !holds.isEmpty() || !leases.isEmpty();
    }

    int held() {
        return holds.size();
    }

    int quarantinedBlocks() {
        int count = 0;
        if (quarantined == 0) {
            return count;
        }
        for (var right : loads.values()) {
            count += quarantined(right);
        }
        for (var right : holds.values()) {
            count += quarantined(right);
        }
        return count;
    }

    private static int quarantined(Right right) {
        var blocks =
                right.kept != null || right.loading == null ? right.kept : right.loading.blocks;
        return right.quarantined && blocks != null ? blocks.count() * blocks.groups() : 0;
    }
}
