// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The loads, holds and leases that the connector has open, and how they end: completed by every
/// rank, or revoked first.
final class HarnessRights {
    private final HarnessShape shape;
    private final SchedulerConnector scheduler;
    private final HarnessPool pool;
    private final HarnessTables tables;
    private final HarnessChecks checks;
    private final Map<TransferId, int[][]> holds = new LinkedHashMap<>();
    private final Map<TransferId, HarnessRequest> loads = new LinkedHashMap<>();
    private final List<TransferId> revocations = new ArrayList<>();
    private final List<TransferId> everRevoked = new ArrayList<>();
    private final List<TransferId> lateNotices = new ArrayList<>();

    HarnessRights(
            HarnessShape shape,
            SchedulerConnector scheduler,
            HarnessPool pool,
            HarnessTables tables,
            HarnessChecks checks) {
        this.shape = shape;
        this.scheduler = scheduler;
        this.pool = pool;
        this.tables = tables;
        this.checks = checks;
    }

    void load(HarnessRequest request, LoadAssignment load) {
        request.load = Optional.of(load);
        loads.put(load.id(), request);
    }

    /// The blocks of an ended request stay for the connector; they go back with the hold, unless a
    /// load goes on in them.
    void hold(TransferId id, HarnessRequest request) {
        holds.put(id, request.blocks);
        request.blocks = isLoading(request) ? request.blocks : new int[0][];
    }

    boolean isLoading(HarnessRequest request) {
        return loads.containsValue(request);
    }

    List<TransferId> openHolds() {
        return List.copyOf(holds.keySet());
    }

    /// Whether nothing is open but holds.
    boolean areQuiet() {
        return loads.isEmpty() && pool.openLeases().isEmpty() && revocations.isEmpty();
    }

    /// The scheduler half is told before the next step or after it, by turns, so that the plan may
    /// still name the right.
    void revoke(TransferId id) {
        revocations.add(id);
        everRevoked.add(id);
        if (everRevoked.size() % 2 == 0) {
            scheduler.onRevoked(id);
        } else {
            lateNotices.add(id);
        }
    }

    void revokeExpiredLeases() {
        pool.expired().stream().filter(id -> !everRevoked.contains(id)).forEach(this::revoke);
    }

    /// What the workers are to be told in this step.
    List<TransferId> takeRevocations() {
        var taken = List.copyOf(revocations);
        revocations.clear();
        return taken;
    }

    /// The workers have been told.
    void sendLateNotices() {
        lateNotices.forEach(scheduler::onRevoked);
        lateNotices.clear();
    }

    /// A transfer has ended on all ranks.
    void end(Completion completion) {
        var id = completion.id();
        var request = loads.remove(id);
        var held = holds.remove(id);
        if (request == null
                && held == null
                && !pool.wasLeased(id)
                && !everRevoked.contains(id)
                && id.child().isEmpty()) {
            throw new AssertionError(
                    "completion of " + id + ", which is no load, hold or lease of this connector");
        }
        if (request != null) {
            endLoad(request, completion.result());
        }
        if (held != null) {
            tables.release(held);
        }
        if (everRevoked.contains(id)) {
            pool.end(id);
        }
    }

    private void endLoad(HarnessRequest request, Completion.Result result) {
        var load = request.load.orElseThrow();
        if (request.state == HarnessRequest.State.FINISHED) {
            if (request.blocks.length > 0 && !holds.containsValue(request.blocks)) {
                tables.close(request);
            }
            return;
        }
        switch (result) {
            case Completion.Completed _ -> {
                checks.mustBeLoaded(
                        request, load.fromToken(), load.toToken(), load.id() + " was completed");
                request.computed = Math.max(request.computed, load.toToken());
                request.loadedTokens = load.tokens();
            }
            case Completion.Failed(Failure failure, var blocks) -> {
                HarnessRules.checkFailed(shape, request, load, blocks);
                if (!request.broken) {
                    checks.mustBeLoadedBut(request, load, blocks);
                }
                int valid = load.validTo(shape.spec(), blocks);
                request.computed = valid;
                request.loadedTokens = valid - load.fromToken();
                request.loadFailure = Optional.of(failure);
            }
            case Completion.Revoked() -> request.computed = load.fromToken();
        }
        request.state = HarnessRequest.State.RUNNING;
        request.load = load.mode() == LoadMode.ASYNC ? request.load : Optional.empty();
    }
}
