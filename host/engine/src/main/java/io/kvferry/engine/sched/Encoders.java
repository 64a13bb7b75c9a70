// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.RequestState.ItemState;
import io.kvferry.engine.worker.EncodeTask;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.DType;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// Sees to it that the multimodal items of a step are in the encoder cache: cached already, loaded
/// through the connector, or encoded.
final class Encoders {
    private final EncoderSlots slots;
    private final EcSide ec;
    private final Observer observer;
    private final Limits limits;
    private final int width;
    private final DType dtype;
    private final ItemTransfers transfers;
    private final List<EncodeTask> encodes = new ArrayList<>();
    private final List<EncoderSlots.Item> encoding = new ArrayList<>();
    private final List<Broken> broken = new ArrayList<>();
    private int budget;

    /// A request that cannot go on for want of an item.
    record Broken(RequestState request, Failure failure) {}

    Encoders(
            EcSide ec,
            Observer observer,
            Completions completions,
            Limits limits,
            int width,
            DType dtype) {
        this.slots = new EncoderSlots(limits.encoderSlots());
        this.transfers =
                new ItemTransfers(slots, completions, limits, observer, this::dropAll, this::lose);
        this.ec = ec;
        this.observer = observer;
        this.limits = limits;
        this.width = width;
        this.dtype = dtype;
    }

    /// A step is planned anew.
    void beginStep() {
        budget = limits.encoderStepBudget();
        encodes.clear();
        encoding.clear();
        transfers.beginStep();
    }

    /// Up to which position the request can compute in this step, `from` when not at all; takes
    /// references on the items before that position.
    int reach(RequestState request, int from, int to, long now) {
        if (request.items.length == 0) {
            return to;
        }
        var inputs = request.request.items();
        for (int i = 0; i < inputs.size(); i++) {
            var input = inputs.get(i);
            boolean within = input.position() < to && input.position() + input.embeddings() > from;
            if (within && !available(request, i, input, now)) {
                return Math.max(from, input.position());
            }
        }
        return to;
    }

    /// Whether all items of the request are there, for an engine that only encodes.
    boolean allAvailable(RequestState request, long now) {
        boolean all = true;
        var inputs = request.request.items();
        for (int i = 0; i < inputs.size(); i++) {
            all &= available(request, i, inputs.get(i), now);
        }
        return all;
    }

    private boolean available(RequestState request, int index, EncoderInput input, long now) {
        var state = request.items[index];
        var cached = slots.find(input.hash());
        if (cached.isPresent()) {
            var item = cached.get();
            if (item.rows != input.embeddings()) {
                broken.add(
                        new Broken(
                                request,
                                new Failure(
                                        ErrorCode.INVALID_REQUEST,
                                        "item "
                                                + input.hash()
                                                + " has "
                                                + input.embeddings()
                                                + " rows here and "
                                                + item.rows
                                                + " in another request")));
                return false;
            }
            if (item.dying) {
                return false;
            }
            if (item.salt.equals(request.request.cacheSalt())) {
                slots.use(item, request);
                state.referenced = true;
                return item.ready;
            }
            if (!item.users.isEmpty()) {
                return false; // another tenant's, though of the same name: its turn first
            }
            slots.remove(item);
        }
        state.referenced = false;
        if (input.embeddings() > slots.total()) {
            broken.add(
                    new Broken(
                            request,
                            new Failure(
                                    ErrorCode.INVALID_REQUEST,
                                    "item "
                                            + input.hash()
                                            + " has "
                                            + input.embeddings()
                                            + " rows, the encoder cache "
                                            + slots.total())));
            return false;
        }
        return fetch(request, state, input, now);
    }

    private boolean fetch(RequestState request, ItemState state, EncoderInput input, long now) {
        if (state.retryAt != 0 && now - state.retryAt < 0) {
            return false;
        }
        var item = ecItem(request, input);
        var answer = state.mustEncode ? LookupResult.miss() : ec.lookup(item);
        return switch (answer) {
            case LookupResult.Pending(var retryAfter) ->
                    pending(request, state, item, retryAfter.toNanos(), now);
            case LookupResult.Hit hit -> load(request, state, item, hit.mode());
            case LookupResult.Miss() -> encode(request, state, item, input);
        };
    }

    /// Tells the connector of a new request.
    void onRequest(RequestState request) {
        if (ec.present() && request.items.length > 0) {
            var items =
                    request.request.items().stream().map(input -> ecItem(request, input)).toList();
            ec.onRequest(request.id, items, request.request.ecParams());
        }
    }

    private EcItem ecItem(RequestState request, EncoderInput input) {
        return new EcItem(
                request.id,
                request.request.items().indexOf(input),
                input.hash(),
                input.modality(),
                input.embeddings(),
                Math.max(1, width),
                dtype,
                request.request.cacheSalt());
    }

    private boolean pending(
            RequestState request, ItemState state, EcItem item, long retryNanos, long now) {
        if (state.pendingSince == 0) {
            state.pendingSince = now | 1;
        }
        if (now - state.pendingSince > limits.pendingLookup().toNanos()) {
            observer.metrics.count(Counter.LOOKUPS_PENDING_TIMEOUT);
            observer.incident(
                    request.id,
                    "lookup-timeout",
                    "engine",
                    "item " + item.hash() + " taken as a miss");
            state.mustEncode = true;
        }
        state.retryAt = now + retryNanos | 1;
        return false;
    }

    private boolean load(RequestState request, ItemState state, EcItem item, LoadMode mode) {
        var room = slots.allocate(item.hash(), item.embeddings(), request);
        if (room.isEmpty()) {
            return false;
        }
        state.referenced = true;
        room.get().ready = mode == LoadMode.SYNC;
        var id = transfers.load(room.get());
        if (!ec.onAllocated(item, Optional.of(id))) {
            transfers.revoke(id);
            room.get().ready = false;
        }
        return room.get().ready;
    }

    private boolean encode(RequestState request, ItemState state, EcItem item, EncoderInput input) {
        if (width == 0 || input.content().length == 0) {
            broken.add(
                    new Broken(
                            request,
                            new Failure(
                                    ErrorCode.MISS,
                                    "item "
                                            + item.hash()
                                            + (width == 0
                                                    ? ": the model has no encoder"
                                                    : ": the request brings no content to encode")
                                            + ", and it could not be loaded")));
            return false;
        }
        boolean first = encodes.isEmpty(); // an item larger than the budget has a step of its own
        if (item.embeddings() > budget && !first) {
            return false;
        }
        var room = slots.allocate(item.hash(), item.embeddings(), request);
        if (room.isEmpty()) {
            return false;
        }
        budget -= item.embeddings();
        state.referenced = true;
        room.get().ready = true;
        encodes.add(new EncodeTask(item, input));
        encoding.add(room.get());
        ec.onAllocated(item, Optional.empty());
        return true;
    }

    /// The request has computed up to `computed`: items before that are no longer needed by it.
    void computed(RequestState request, int computed) {
        for (int i = 0; i < request.items.length; i++) {
            var input = request.request.items().get(i);
            if (request.items[i].referenced
                    && input.position() + input.embeddings() <= computed
                    && !neededLater(request, i)) {
                drop(request, i);
            }
        }
    }

    private static boolean neededLater(RequestState request, int index) {
        var inputs = request.request.items();
        for (int i = index + 1; i < inputs.size(); i++) {
            if (inputs.get(i).hash().equals(inputs.get(index).hash())) {
                return true;
            }
        }
        return false;
    }

    /// The request ended.
    ///
    /// @return `ec_transfer_params` of the response
    TransferParams finish(RequestState request, FinishReason reason) {
        if (!ec.present() || request.items.length == 0) {
            dropAll(request);
            return TransferParams.EMPTY;
        }
        var decision = ec.finish(request.id, reason);
        switch (decision) {
            case FinishDecision.Release _ -> dropAll(request);
            case FinishDecision.Hold(var id, var deadline, _) -> {
                if (!transfers.hold(id, request, deadline)) {
                    dropAll(request);
                }
            }
        }
        return decision.params();
    }

    private void dropAll(RequestState request) {
        for (int i = 0; i < request.items.length; i++) {
            if (request.items[i].referenced) {
                drop(request, i);
            }
        }
    }

    private void drop(RequestState request, int index) {
        request.items[index].referenced = false;
        slots.find(request.request.items().get(index).hash())
                .ifPresent(item -> {
                    slots.drop(item, request);
                    if (item.users.isEmpty() && !item.ready) {
                        item.dying = true;
                        transfers.revokeLoadsOf(item);
                    }
                });
    }

    /// The item is not there: whoever needs it has to encode it.
    private void lose(EncoderSlots.Item item) {
        for (var user : item.users) {
            for (int i = 0; i < user.items.length; i++) {
                if (user.request.items().get(i).hash().equals(item.hash)) {
                    user.items[i].mustEncode = true;
                    user.items[i].referenced = false;
                }
            }
        }
        item.users.clear();
        slots.remove(item);
    }

    void endStep() {
        transfers.endStep();
        observer.metrics.add(Counter.ITEMS_ENCODED, encoding.size());
    }

    void encodeFailed(String hash, Failure failure) {
        slots.find(hash)
                .ifPresent(item -> {
                    item.users.forEach(user -> broken.add(new Broken(user, failure)));
                    item.users.clear();
                    slots.remove(item);
                });
    }

    /// Gives all rows back without asking anybody, because the workers are gone.
    void releaseAll() {
        transfers.releaseAll();
        slots.clear();
    }

    /// Drops every item that no request uses.
    void clear() {
        slots.clear();
    }

    List<Broken> takeBroken() {
        if (broken.isEmpty()) {
            return List.of();
        }
        var taken = List.copyOf(broken);
        broken.clear();
        return taken;
    }

    List<EncodeTask> encodes() {
        return encodes;
    }

    List<String> takeFreed() {
        var freed = slots.takeFreed();
        freed.forEach(ec::onFreed);
        return freed;
    }

    boolean hasNews() {
        return !encodes.isEmpty() || transfers.hasRevoked() || slots.hasFreed();
    }

    int freeRows() {
        return slots.free() + slots.freeable();
    }

    /// Loads and holds under way.
    ItemTransfers transfers() {
        return transfers;
    }
}
