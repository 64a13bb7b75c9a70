// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.RequestLifecycle.Status;
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

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;

/// Sees to it that the multimodal items of a step are in the encoder cache: cached already, loaded
/// through the connector, or encoded.
final class EncoderScheduler {
    private final EncoderIndex slots;
    private final GuardedEcScheduler ec;
    private final Telemetry telemetry;
    private final Limits limits;
    private final int width;
    private final DType dtype;
    private final ItemTransfers transfers;
    private final List<EncodeTask> encodes = new ArrayList<>();
    private final List<EncoderIndex.Item> encoding = new ArrayList<>();
    private final List<Broken> broken = new ArrayList<>();
    private int budget;

    /// Somebody found no room for an item in the step that is being planned.
    private boolean shortOfRows;

    /// A request that cannot go on for want of an item.
    record Broken(RequestState request, Failure failure) {}

    EncoderScheduler(
            GuardedEcScheduler ec,
            Telemetry telemetry,
            Completions completions,
            Limits limits,
            int width,
            DType dtype) {
        this.slots = new EncoderIndex(limits.encoderSlots(), ec::onFreed);
        this.transfers =
                new ItemTransfers(
                        slots,
                        completions,
                        limits,
                        telemetry,
                        this::dropAll,
                        this::arrived,
                        this::lose,
                        this::stick);
        this.ec = ec;
        this.telemetry = telemetry;
        this.limits = limits;
        this.width = width;
        this.dtype = dtype;
    }

    /// A step is planned anew.
    void beginStep() {
        budget = limits.encoderStepBudget();
        encodes.clear();
        encoding.clear();
        shortOfRows = false;
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
                dropReady(request, i + 1); // or it would wait for rows that it has itself
                return Math.max(from, input.position());
            }
        }
        return to;
    }

    /// How far the items of a request are, for an engine that only encodes.
    enum Progress {
        ALL_THERE,
        UNDER_WAY,
        /// No room for all of them; none is reserved.
        NO_ROOM
    }

    /// Gathers the items of a request in an engine that only encodes. Room for all of them is
    /// reserved at once: two requests that each had room for a part would wait for each other.
    Progress gather(RequestState request, long now) {
        if (!request.itemsReserved && !reserve(request)) {
            return shortOfRows ? Progress.NO_ROOM : Progress.UNDER_WAY;
        }
        boolean all = true;
        var inputs = request.request.items();
        for (int i = 0; i < inputs.size(); i++) {
            all &= available(request, i, inputs.get(i), now);
        }
        return all ? Progress.ALL_THERE : Progress.UNDER_WAY;
    }

    private boolean reserve(RequestState request) {
        var inputs = request.request.items();
        var missing = new LinkedHashMap<String, EncoderInput>();
        for (int i = 0; i < inputs.size(); i++) {
            var input = inputs.get(i);
            switch (access(request, input)) {
                case SHARED -> use(request, i, input);
                case ABSENT -> missing.put(input.hash(), input);
                case REFUSED -> {
                    dropAll(request);
                    return false;
                }
            }
        }
        long rows = missing.values().stream().mapToLong(EncoderInput::embeddings).sum();
        if (isShortOf(rows, request)) {
            dropAll(request);
            return false;
        }
        for (var input : missing.values()) {
            if (slots.allocate(input.hash(), input.embeddings(), request).isEmpty()) {
                throw new IllegalStateException("no rows for " + input.hash() + " after all");
            }
        }
        for (int i = 0; i < inputs.size(); i++) {
            request.items[i].referenced = true;
        }
        request.itemsReserved = true;
        return true;
    }

    private enum Access {
        /// The cache has the item, or somebody is about to fill it.
        SHARED,
        ABSENT,
        /// Not now, or never: then the request is broken.
        REFUSED
    }

    private Access access(RequestState request, EncoderInput input) {
        var cached = slots.find(input.hash());
        if (cached.isEmpty()) {
            return Access.ABSENT;
        }
        var item = cached.get();
        if (item.rows != input.embeddings()) {
            refuse(
                    request,
                    ErrorCode.INVALID_REQUEST,
                    "item "
                            + input.hash()
                            + " has "
                            + input.embeddings()
                            + " rows here and "
                            + item.rows
                            + " in another request");
            return Access.REFUSED;
        }
        if (item.dying) {
            if (item.stuck) {
                refuse(request, ErrorCode.TIMEOUT, unanswered(item));
            }
            return Access.REFUSED;
        }
        if (item.salt.equals(request.request.cacheSalt())) {
            return Access.SHARED;
        }
        if (!slots.isUnreferenced(item)) {
            return Access.REFUSED; // another tenant's, though of the same name: its turn first
        }
        slots.remove(item);
        return Access.ABSENT;
    }

    private static String unanswered(EncoderIndex.Item item) {
        return "the load of item " + item.hash + " was revoked, and not every rank has answered";
    }

    private void refuse(RequestState request, ErrorCode code, String message) {
        broken.add(new Broken(request, new Failure(code, message)));
    }

    private void use(RequestState request, int index, EncoderInput input) {
        slots.use(slots.find(input.hash()).orElseThrow(), request);
        request.items[index].referenced = true;
    }

    private boolean available(RequestState request, int index, EncoderInput input, long now) {
        var state = request.items[index];
        switch (access(request, input)) {
            case REFUSED -> {
                return false;
            }
            case ABSENT -> state.referenced = false;
            case SHARED -> {
                use(request, index, input);
                var item = slots.find(input.hash()).orElseThrow();
                if (item.started) {
                    return item.ready;
                }
            }
        }
        return fetch(request, state, input, now);
    }

    private boolean fetch(RequestState request, ItemState state, EncoderInput input, long now) {
        if ((state.retryAt != 0 && now - state.retryAt < 0)
                || (slots.find(input.hash()).isEmpty() && isShortOf(input.embeddings(), request))) {
            return false;
        }
        var item = ecItem(request, input);
        var answer = state.mustEncode ? LookupResult.miss() : ec.lookup(item);
        return switch (answer) {
            case LookupResult.Pending(var retryAfter) ->
                    pending(request, state, item, retryAfter, now);
            case LookupResult.Hit hit -> load(request, state, item, hit.mode());
            case LookupResult.Miss() -> encode(request, state, item, input);
        };
    }

    /// Whether there is no room for these rows. Then nobody gets any in the rest of the step, or
    /// small items would keep the room from a large one for ever.
    private boolean isShortOf(long rows, RequestState request) {
        if (rows > 0 && (shortOfRows || !slots.hasRoom(rows))) {
            shortOfRows = true;
            int stuck = slots.stuck();
            if (rows > slots.total() - stuck) {
                refuse(
                        request,
                        stuck == 0 ? ErrorCode.INVALID_REQUEST : ErrorCode.TIMEOUT,
                        "items of "
                                + rows
                                + " rows; the encoder cache holds "
                                + slots.total()
                                + (stuck == 0
                                        ? ""
                                        : ", of which "
                                                + stuck
                                                + " are out of use until a connector answers"));
            }
            return true;
        }
        return false;
    }

    private EncoderIndex.Item room(EcItem item, RequestState request, ItemState state) {
        var room =
                slots.find(item.hash())
                        .or(() -> slots.allocate(item.hash(), item.embeddings(), request))
                        .orElseThrow();
        state.referenced = true;
        slots.start(room);
        return room;
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
            RequestState request, ItemState state, EcItem item, Duration retryAfter, long now) {
        if (state.pendingSince == 0) {
            state.pendingSince = now | 1;
        }
        long left = state.pendingSince + limits.pendingLookup().toNanos() - now;
        if (left <= 0) {
            telemetry.metrics.count(Counter.LOOKUPS_PENDING_TIMEOUT);
            telemetry.incident(
                    request.id,
                    "lookup-timeout",
                    "engine",
                    "item " + item.hash() + " taken as a miss");
            state.mustEncode = true;
        }
        state.retryAt = left <= 0 ? 0 : now + Limits.nanos(retryAfter, left) | 1;
        return false;
    }

    private boolean load(RequestState request, ItemState state, EcItem item, LoadMode mode) {
        var room = room(item, request, state);
        room.ready = mode == LoadMode.SYNC;
        var id = transfers.load(room);
        if (!ec.onAllocated(item, Optional.of(id))) {
            transfers.revoke(id);
            room.ready = false;
        }
        return room.ready;
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
        var room = room(item, request, state);
        budget -= item.embeddings();
        room.ready = true;
        encodes.add(new EncodeTask(item, input));
        encoding.add(room);
        ec.onAllocated(item, Optional.empty());
        return true;
    }

    /// The request has computed up to `computed`: items before that are no longer needed by it.
    void computed(RequestState request, int computed) {
        for (int i = 0; i < request.items.length; i++) {
            var input = request.request.items().get(i);
            if (request.items[i].referenced && input.position() + input.embeddings() <= computed) {
                drop(request, i);
            }
        }
    }

    /// The request does not run, or no longer: it gives its references on ready items back, since
    /// requests that run may need the rows. What is being filled for it goes on.
    void stopped(RequestState request) {
        dropReady(request, 0);
    }

    private void dropReady(RequestState request, int first) {
        for (int i = first; i < request.items.length; i++) {
            if (request.items[i].referenced
                    && slots.find(request.request.items().get(i).hash())
                            .filter(item -> item.ready)
                            .isPresent()) {
                drop(request, i);
            }
        }
    }

    /// Whether all items of the request are there after the step that should have brought them.
    boolean hasAll(RequestState request) {
        for (var input : request.request.items()) {
            if (slots.find(input.hash()).filter(item -> item.ready).isEmpty()) {
                return false;
            }
        }
        return true;
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
        request.itemsReserved = false;
        for (int i = 0; i < request.items.length; i++) {
            if (request.items[i].referenced) {
                drop(request, i);
            }
        }
    }

    private void drop(RequestState request, int index) {
        request.items[index].referenced = false;
        var hash = request.request.items().get(index).hash();
        if (isReferenced(request, hash)) {
            return; // the same item at another position
        }
        slots.find(hash)
                .ifPresent(item -> {
                    if (!slots.drop(item, request) || !item.users.isEmpty() || item.ready) {
                        return;
                    }
                    if (item.started) {
                        item.dying = true;
                        transfers.revokeLoadsOf(item);
                    } else {
                        slots.remove(item);
                    }
                });
    }

    private static boolean isReferenced(RequestState request, String hash) {
        for (int i = 0; i < request.items.length; i++) {
            if (request.items[i].referenced && request.request.items().get(i).hash().equals(hash)) {
                return true;
            }
        }
        return false;
    }

    /// The item has been loaded. Requests that wait for something else meanwhile have no reference
    /// on it; it stays in the cache for them as long as nobody needs the rows.
    private void arrived(EncoderIndex.Item item) {
        if (item.dying) {
            slots.remove(item);
            return;
        }
        item.ready = true;
        if (!limits.encodeOnly()) {
            item.users.removeIf(user -> {
                boolean waits = user.status() != Status.RUNNING && user.status() != Status.ENDED;
                if (waits) {
                    forget(user, item.hash);
                }
                return waits;
            });
        }
        slots.retain(item);
    }

    private static void forget(RequestState user, String hash) {
        for (int i = 0; i < user.items.length; i++) {
            if (user.request.items().get(i).hash().equals(hash)) {
                user.items[i].referenced = false;
            }
        }
    }

    /// The item is not there: whoever needs it has to encode it. An encode engine keeps the room
    /// for it, since it is reserved together with that of the requests' other items.
    private void lose(EncoderIndex.Item item) {
        for (var user : item.users) {
            for (int i = 0; i < user.items.length; i++) {
                if (user.request.items().get(i).hash().equals(item.hash)) {
                    user.items[i].mustEncode = true;
                }
            }
        }
        if (limits.encodeOnly() && !item.users.isEmpty() && !item.dying) {
            slots.empty(item);
            return;
        }
        item.users.forEach(user -> forget(user, item.hash));
        item.users.clear();
        slots.remove(item);
    }

    /// A rank has not answered the revocation of the item's load: nobody can wait for it any more,
    /// and nobody can have the rows.
    private void stick(EncoderIndex.Item item) {
        item.stuck = true;
        item.dying = true;
        for (var user : item.users) {
            refuse(user, ErrorCode.TIMEOUT, unanswered(item));
        }
    }

    void endStep() {
        transfers.endStep();
        slots.endStep();
        telemetry.metrics.add(Counter.ITEMS_ENCODED, encoding.size());
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

    /// The workers are gone, and every item with them: the requests need theirs anew.
    void forgetAll(Iterable<RequestState> requests) {
        transfers.releaseAll();
        slots.forgetAll();
        encodes.clear();
        encoding.clear();
        broken.clear();
        for (var request : requests) {
            request.itemsReserved = false;
            for (var item : request.items) {
                item.referenced = false;
                item.retryAt = 0;
                item.pendingSince = 0;
            }
        }
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
        return slots.takeFreed();
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
