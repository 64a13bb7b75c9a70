// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;

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
    private final EncoderSlots slots;
    private final Completions completions;
    private final Limits limits;
    private final Observer observer;
    private final Consumer<RequestState> release;
    private final Consumer<EncoderSlots.Item> lose;
    private final Map<TransferId, Load> loads = new HashMap<>();
    private final Map<TransferId, Hold> holds = new HashMap<>();
    private final List<TransferId> newLoads = new ArrayList<>();
    private List<TransferId> revoked = new ArrayList<>();
    private long loadCount;
    private boolean arrived;

    private static final class Load {
        final EncoderSlots.Item item;
        final long deadline;
        boolean revoked;

        Load(EncoderSlots.Item item, long deadline) {
            this.item = item;
            this.deadline = deadline;
        }
    }

    private static final class Hold {
        final RequestState request;
        final long deadline;
        boolean revoked;

        Hold(RequestState request, long deadline) {
            this.request = request;
            this.deadline = deadline;
        }
    }

    /// @param release takes requests whose hold has ended
    /// @param lose takes items whose load has failed
    ItemTransfers(
            EncoderSlots slots,
            Completions completions,
            Limits limits,
            Observer observer,
            Consumer<RequestState> release,
            Consumer<EncoderSlots.Item> lose) {
        this.slots = slots;
        this.completions = completions;
        this.limits = limits;
        this.observer = observer;
        this.release = release;
        this.lose = lose;
    }

    /// A step is planned anew.
    void beginStep() {
        newLoads.clear();
    }

    /// A load begins. Numbered through, since a hash may be dropped and loaded again.
    TransferId load(EncoderSlots.Item item) {
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
        if (load != null && !load.revoked) {
            load.revoked = true;
            revoked.add(id);
        }
    }

    void revokeLoadsOf(EncoderSlots.Item item) {
        loads.forEach((id, load) -> {
            if (load.item == item) {
                revoke(id);
            }
        });
    }

    private void revoke(TransferId id, Hold hold) {
        if (!hold.revoked) {
            hold.revoked = true;
            revoked.add(id);
        }
    }

    void expire(long now) {
        loads.forEach((id, load) -> {
            if (now - load.deadline >= 0) {
                revoke(id);
            }
        });
        holds.forEach((id, hold) -> {
            if (now - hold.deadline >= 0) {
                revoke(id, hold);
            }
        });
    }

    void revokeAll() {
        loads.keySet().forEach(this::revoke);
        holds.forEach(this::revoke);
    }

    /// The connector made no plan: what it was to load in it will never come.
    void planFailed() {
        newLoads.forEach(this::revoke);
    }

    void complete(Completion completion) {
        var hold = holds.remove(completion.id());
        if (hold != null) {
            release.accept(hold.request);
        }
        var load = loads.remove(completion.id());
        if (load == null) {
            if (hold == null) {
                observer.metrics.count(Counter.COMPLETIONS_UNMATCHED);
            }
            return;
        }
        arrived = true;
        var item = load.item;
        if (completion.result() instanceof TransferResult.Completed) {
            observer.metrics.count(Counter.ITEMS_LOADED);
            item.dying = false;
            item.ready = true;
            if (item.users.isEmpty()) {
                slots.remove(item);
            }
            return;
        }
        observer.metrics.count(Counter.ITEM_LOADS_FAILED);
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
            completions.add(id, rank, new TransferResult.Failed(failure, List.of()), merged);
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
