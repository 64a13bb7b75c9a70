// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/// The rights that the encoder-cache connector has on items: loads, and holds of ended requests.
/// Each has a deadline, after which it is revoked.
///
/// Threading: scheduler thread only.
final class ItemTransfers {
    private final EncoderIndex slots;
    private final Completions completions;
    private final Limits limits;
    private final Telemetry telemetry;
    private final Consumer<RequestState> release;
    private final Consumer<EncoderIndex.Item> arrive;
    private final Consumer<EncoderIndex.Item> lose;
    private final Consumer<EncoderIndex.Item> stick;
    private final Map<TransferId, Load> loads = new HashMap<>();
    private final Map<TransferId, Hold> holds = new HashMap<>();
    private final List<TransferId> newLoads = new ArrayList<>();
    private List<TransferId> revoked = new ArrayList<>();
    private long loadCount;
    private boolean arrived;

    /// What loads and holds have in common.
    private abstract static class Right {
        final long deadline;

        /// When it was revoked; 0 for not yet.
        long revokedAt;

        boolean quarantined;

        Right(long deadline) {
            this.deadline = deadline;
        }
    }

    private static final class Load extends Right {
        final EncoderIndex.Item item;

        Load(EncoderIndex.Item item, long deadline) {
            super(deadline);
            this.item = item;
        }
    }

    private static final class Hold extends Right {
        final RequestState request;

        Hold(RequestState request, long deadline) {
            super(deadline);
            this.request = request;
        }
    }

    /// @param release takes requests whose hold has ended
    /// @param arrive takes items that have been loaded
    /// @param lose takes items whose load has failed
    /// @param stick takes items whose load was revoked and not answered in time
    ItemTransfers(
            EncoderIndex slots,
            Completions completions,
            Limits limits,
            Telemetry telemetry,
            Consumer<RequestState> release,
            Consumer<EncoderIndex.Item> arrive,
            Consumer<EncoderIndex.Item> lose,
            Consumer<EncoderIndex.Item> stick) {
        this.slots = slots;
        this.completions = completions;
        this.limits = limits;
        this.telemetry = telemetry;
        this.release = release;
        this.arrive = arrive;
        this.lose = lose;
        this.stick = stick;
    }

    /// A step is planned anew.
    void beginStep() {
        newLoads.clear();
    }

    /// A load begins. Numbered through, since a hash may be dropped and loaded again.
    TransferId load(EncoderIndex.Item item) {
        var id = new TransferId(item.hash, (int) ++loadCount, TransferId.Direction.LOAD, "");
        loads.put(id, new Load(item, System.nanoTime() + limits.load().toNanos()));
        newLoads.add(id);
        return id;
    }

    /// The items of an ended request stay for the connector.
    ///
    /// @return false when the hold has been completed already
    boolean hold(TransferId id, RequestState request, Deadline deadline) {
        if (completions.hasEnded(id)) {
            return false;
        }
        long nanos = Math.min(deadline.remainingNanos(), limits.hold().toNanos());
        holds.put(id, new Hold(request, System.nanoTime() + nanos));
        return true;
    }

    boolean isLoading(TransferId id) {
        return loads.containsKey(id);
    }

    void revoke(TransferId id) {
        var load = loads.get(id);
        if (load != null) {
            revoke(id, load);
        }
    }

    void revokeLoadsOf(EncoderIndex.Item item) {
        loads.forEach((id, load) -> {
            if (load.item == item) {
                revoke(id, load);
            }
        });
    }

    private void revoke(TransferId id, Right right) {
        if (right.revokedAt == 0) {
            right.revokedAt = System.nanoTime() | 1;
            revoked.add(id);
        }
    }

    void expire(long now) {
        loads.forEach((id, load) -> {
            if (expire(id, load, now)) {
                stick.accept(load.item);
            }
        });
        holds.forEach((id, hold) -> {
            if (expire(id, hold, now)) {
                itemsOf(hold).forEach(item -> item.stuck = true);
            }
        });
    }

    /// @return whether the revocation has just been found to be unanswered for too long
    private boolean expire(TransferId id, Right right, long now) {
        if (right.revokedAt == 0) {
            if (now - right.deadline >= 0) {
                revoke(id, right);
            }
            return false;
        }
        if (right.quarantined || now - right.revokedAt < limits.revoke().toNanos()) {
            return false;
        }
        right.quarantined = true;
        telemetry.incident(
                id.subject(),
                "quarantine",
                "engine",
                id
                        + " was revoked, but not every rank has answered; its rows stay out of use until then");
        return true;
    }

    /// Nanoseconds until [#expire] has something to do; [Long#MAX_VALUE] when it never will.
    long untilDeadline(long now) {
        long next = Long.MAX_VALUE;
        for (var load : loads.values()) {
            next = Math.min(next, untilDue(load, now));
        }
        for (var hold : holds.values()) {
            next = Math.min(next, untilDue(hold, now));
        }
        return next;
    }

    private long untilDue(Right right, long now) {
        if (right.revokedAt == 0) {
            return right.deadline - now;
        }
        return right.quarantined
                ? Long.MAX_VALUE
                : right.revokedAt + limits.revoke().toNanos() - now;
    }

    private List<EncoderIndex.Item> itemsOf(Hold hold) {
        var items = new ArrayList<EncoderIndex.Item>();
        for (var input : hold.request.request.items()) {
            slots.find(input.hash())
                    .filter(item -> item.users.contains(hold.request))
                    .ifPresent(items::add);
        }
        return items;
    }

    void revokeAll() {
        loads.forEach(this::revoke);
        holds.forEach(this::revoke);
    }

    /// The connector made no plan: what it was to load in it will never come.
    void planFailed() {
        newLoads.forEach(this::revoke);
    }

    void complete(Completion completion) {
        var hold = holds.remove(completion.id());
        if (hold != null) {
            itemsOf(hold).forEach(item -> item.stuck = false);
            release.accept(hold.request);
        }
        var load = loads.remove(completion.id());
        if (load == null) {
            if (hold == null) {
                telemetry.metrics.count(Counter.COMPLETIONS_UNMATCHED);
            }
            return;
        }
        arrived = true;
        var item = load.item;
        if (completion.result() instanceof Completion.Completed) {
            telemetry.metrics.count(Counter.ITEMS_LOADED);
            arrive.accept(item);
            return;
        }
        telemetry.metrics.count(Counter.ITEM_LOADS_FAILED);
        lose.accept(item);
    }

    /// A synchronous load that was not reported with its step goes on like an asynchronous one.
    void endStep() {
        for (var id : newLoads) {
            var load = loads.get(id);
            if (load != null) {
                load.item.ready = false;
            }
        }
    }

    /// Ends everything on one rank, which has given its worker half up.
    void failRank(int rank, Failure failure, List<Completion> merged) {
        var open = new ArrayList<TransferId>(loads.keySet());
        open.addAll(holds.keySet());
        for (var id : open) {
            completions.add(id, rank, new Completion.Failed(failure, List.of()), merged);
        }
    }

    /// Ends everything without asking anybody, because the workers are gone.
    void releaseAll() {
        holds.values().forEach(hold -> release.accept(hold.request));
        holds.clear();
        loads.values().forEach(load -> slots.remove(load.item));
        loads.clear();
        revoked = new ArrayList<>();
    }

    /// Whether a load has ended since the last call, so that requests which waited for it can go
    /// on.
    boolean takeArrived() {
        boolean any = arrived;
        arrived = false;
        return any;
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

    boolean isOpen() {
        return !loads.isEmpty() || !holds.isEmpty();
    }

    int held() {
        return holds.size();
    }
}
