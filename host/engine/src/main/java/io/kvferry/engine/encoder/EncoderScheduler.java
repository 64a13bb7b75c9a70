// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedScheduler;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.CachePlace;
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
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;

/// Sees to it that the multimodal items of a step are in the encoder cache: cached already, loaded
/// through the connector, or encoded.
public final class EncoderScheduler {
    private final Settings settings;
    private final EncoderIndex index;
    private final ItemReferences references;
    private final GuardedEcScheduler ec;
    private final Telemetry telemetry;
    private final List<EncodeTask> encodes = new ArrayList<>();
    private int budget;

    /// Somebody found no room for an item in the step that is being planned.
    private boolean shortOfRows;

    /// A request that cannot go on for want of an item.
    public record Broken(String requestId, Failure failure) {}

    /// @param rows of the encoder cache
    /// @param stepRows encoded in one step at most
    /// @param encodeOnly whether the engine computes items and nothing else
    /// @param pendingLookup how long a lookup may be pending
    /// @param width values per row; 0 for a model without an encoder
    public record Settings(
            int rows,
            int stepRows,
            boolean encodeOnly,
            Duration pendingLookup,
            int width,
            DType dtype) {}

    public EncoderScheduler(
            Settings settings, GuardedEcScheduler ec, Transfers transfers, Telemetry telemetry) {
        this.settings = settings;
        this.index = new EncoderIndex(settings.rows, ec::onFreed);
        this.references =
                new ItemReferences(index, transfers, telemetry.metrics(), settings.encodeOnly);
        this.ec = ec;
        this.telemetry = telemetry;
    }

    /// A step is planned anew.
    public void beginStep() {
        budget = settings.stepRows;
        encodes.clear();
        shortOfRows = false;
    }

    /// Up to which position the request can compute in this step, `from` when not at all; takes
    /// references on the items before that position. Gives back those on items before `from`: a
    /// request that was preempted while an item was loaded for it may have found the KV behind that
    /// item since, and would keep its rows without ever needing them.
    public int reach(RequestItems request, int from, int to, long now) {
        if (request.isEmpty()) {
            return to;
        }
        references.computed(request, from);
        var inputs = request.inputs;
        for (int i = 0; i < inputs.size(); i++) {
            var input = inputs.get(i);
            boolean within = input.position() < to && input.position() + input.embeddings() > from;
            if (within && !available(request, i, input, now)) {
                references.dropReady(
                        request, i + 1); // or it would wait for rows that it has itself
                return Math.max(from, input.position());
            }
        }
        return to;
    }

    /// How far the items of a request are, for an engine that only encodes.
    public enum Progress {
        ALL_THERE,
        UNDER_WAY,
        /// No room for all of them; none is reserved.
        NO_ROOM
    }

    /// Gathers the items of a request in an engine that only encodes. Room for all of them is
    /// reserved at once: two requests that each had room for a part would wait for each other.
    public Progress gather(RequestItems request, long now) {
        if (!request.reserved && !reserve(request)) {
            return shortOfRows ? Progress.NO_ROOM : Progress.UNDER_WAY;
        }
        boolean all = true;
        var inputs = request.inputs;
        for (int i = 0; i < inputs.size(); i++) {
            all &= available(request, i, inputs.get(i), now);
        }
        return all ? Progress.ALL_THERE : Progress.UNDER_WAY;
    }

    private boolean reserve(RequestItems request) {
        var inputs = request.inputs;
        var missing = new LinkedHashMap<String, Integer>();
        for (int i = 0; i < inputs.size(); i++) {
            var input = inputs.get(i);
            switch (access(request, input)) {
                case SHARED -> references.use(index.find(input.hash()).orElseThrow(), request, i);
                case ABSENT -> missing.put(input.hash(), input.embeddings());
                case REFUSED -> {
                    references.dropAll(request);
                    return false;
                }
            }
        }
        var sizes = missing.values().stream().mapToInt(Integer::intValue).toArray();
        if (isShortOf(request, sizes) || !index.allocate(missing, request)) {
            references.dropAll(request);
            return false;
        }
        for (int i = 0; i < inputs.size(); i++) {
            request.state(i).referenced = true;
        }
        request.reserved = true;
        return true;
    }

    private enum Access {
        /// The cache has the item, or somebody is about to fill it.
        SHARED,
        ABSENT,
        /// Not now, or never: then the request is broken.
        REFUSED
    }

    private Access access(RequestItems request, EncoderInput input) {
        var cached = index.find(input.hash());
        if (cached.isEmpty()) {
            return Access.ABSENT;
        }
        var item = cached.get();
        if (item.rows != input.embeddings()) {
            references.fail(
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
                references.fail(request, ErrorCode.TIMEOUT, ItemReferences.unansweredLoad(item));
            }
            return Access.REFUSED;
        }
        return Access.SHARED;
    }

    private boolean available(RequestItems request, int position, EncoderInput input, long now) {
        var state = request.state(position);
        switch (access(request, input)) {
            case REFUSED -> {
                return false;
            }
            case ABSENT -> state.referenced = false;
            case SHARED -> {
                var item = index.find(input.hash()).orElseThrow();
                references.use(item, request, position);
                if (item.started) {
                    return item.ready;
                }
            }
        }
        return fetch(request, position, now);
    }

    private boolean fetch(RequestItems request, int position, long now) {
        var state = request.state(position);
        var input = request.inputs.get(position);
        if ((state.retryAt != 0 && now - state.retryAt < 0)
                || (index.find(input.hash()).isEmpty() && isShortOf(request, input.embeddings()))) {
            return false;
        }
        var item = item(request, position);
        var answer = state.mustEncode ? LookupResult.MISS : ec.lookup(item);
        return switch (answer) {
            case LookupResult.Pending(var retryAfter) ->
                    pending(request, state, item, retryAfter, now);
            case LookupResult.Hit hit -> load(request, state, item, hit.mode());
            case LookupResult.Miss() -> encode(request, state, item, input);
        };
    }

    /// Whether there is no room for items of so many rows each. Then nobody gets any in the rest of
    /// the step, or small items would keep the room from a large one for ever.
    private boolean isShortOf(RequestItems request, int... rows) {
        if (rows.length == 0 || (!shortOfRows && index.hasRoom(rows))) {
            return false;
        }
        shortOfRows = true;
        if (!index.mayEverHaveRoom(rows)) {
            int stuck = index.stuck();
            references.fail(
                    request,
                    stuck == 0 ? ErrorCode.INVALID_REQUEST : ErrorCode.TIMEOUT,
                    "items of "
                            + Arrays.stream(rows).asLongStream().sum()
                            + " rows; the encoder cache holds "
                            + index.total()
                            + (stuck == 0
                                    ? ""
                                    : ", of which "
                                            + stuck
                                            + " are out of use until a connector answers"));
        }
        return true;
    }

    private EncoderIndex.Item room(EcItem item, RequestItems request, RequestItems.State state) {
        var room =
                index.find(item.hash())
                        .or(() -> index.allocate(item.hash(), item.embeddings(), request))
                        .orElseThrow();
        state.referenced = true;
        index.start(room);
        return room;
    }

    /// Tells the connector of a new request.
    public void onRequest(RequestItems request) {
        if (ec.present() && !request.isEmpty()) {
            var items = new ArrayList<EcItem>(request.count());
            for (int i = 0; i < request.count(); i++) {
                items.add(item(request, i));
            }
            ec.onRequest(request.requestId, items, request.params);
        }
    }

    private EcItem item(RequestItems request, int position) {
        var input = request.inputs.get(position);
        return new EcItem(
                request.requestId,
                position,
                input.hash(),
                input.modality(),
                input.embeddings(),
                Math.max(1, settings.width),
                settings.dtype);
    }

    private boolean pending(
            RequestItems request,
            RequestItems.State state,
            EcItem item,
            Duration retryAfter,
            long now) {
        if (state.pendingSince == 0) {
            state.pendingSince = now | 1;
        }
        long left = state.pendingSince + settings.pendingLookup.toNanos() - now;
        if (left <= 0) {
            telemetry.metrics().count(Counter.LOOKUPS_PENDING_TIMEOUT);
            telemetry.incident(
                    request.requestId,
                    "lookup-timeout",
                    "engine",
                    "item " + item.hash() + " taken as a miss");
            state.mustEncode = true;
        }
        state.retryAt = left <= 0 ? 0 : now + GuardedScheduler.nanos(retryAfter, left) | 1;
        return false;
    }

    private boolean load(
            RequestItems request, RequestItems.State state, EcItem item, LoadMode mode) {
        var room = room(item, request, state);
        room.ready = mode == LoadMode.SYNC;
        var id = references.load(room);
        if (!ec.onAllocated(item, Optional.of(id))) {
            references.revokeLoad(room);
        }
        return room.ready;
    }

    private boolean encode(
            RequestItems request, RequestItems.State state, EcItem item, EncoderInput input) {
        if (settings.width == 0 || input.content().length == 0) {
            references.fail(
                    request,
                    ErrorCode.MISS,
                    "item "
                            + item.hash()
                            + (settings.width == 0
                                    ? ": the model has no encoder"
                                    : ": the request brings no content to encode")
                            + ", and it could not be loaded");
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
        ec.onAllocated(item, Optional.empty());
        return true;
    }

    /// The request has computed up to `computed`: items before that are no longer needed by it.
    public void computed(RequestItems request, int computed) {
        references.computed(request, computed);
    }

    /// The request does not run, or no longer: it gives its references on ready items back, since
    /// requests that run may need the rows. What is being filled for it goes on.
    public void stopped(RequestItems request) {
        references.dropReady(request, 0);
    }

    /// Whether all items of the request are there after the step that should have brought them.
    public boolean hasAll(RequestItems request) {
        for (var input : request.inputs) {
            if (index.find(input.hash()).filter(item -> item.ready).isEmpty()) {
                return false;
            }
        }
        return true;
    }

    /// The request ended.
    ///
    /// @return `ec_transfer_params` of the response
    public TransferParams finish(RequestItems request, FinishReason reason) {
        if (!ec.present() || request.isEmpty()) {
            references.dropAll(request);
            return TransferParams.EMPTY;
        }
        var decision = ec.finish(request.requestId, reason);
        switch (decision) {
            case FinishDecision.Release _ -> references.dropAll(request);
            case FinishDecision.Hold(var id, var deadline, _) ->
                    references.hold(id, request, deadline);
        }
        return decision.params();
    }

    /// What was planned has been done, except what [#encodeFailed] was told of.
    public void endStep() {
        index.endStep();
        telemetry.metrics().add(Counter.ITEMS_ENCODED, encodes.size());
    }

    public void encodeFailed(String hash, Failure failure) {
        references.encodeFailed(hash, failure);
    }

    /// The workers are gone, and every item with them: the requests need theirs anew.
    public void forgetAll(Iterable<RequestItems> requests) {
        index.forgetAll();
        encodes.clear();
        references.takeBroken();
        requests.forEach(RequestItems::reset);
    }

    /// Drops every item that no request uses.
    public void clear() {
        index.clear();
    }

    public List<Broken> takeBroken() {
        return references.takeBroken();
    }

    public List<EncodeTask> encodes() {
        return encodes;
    }

    /// Where the items lie that are filled from this step on; drains.
    public List<CachePlace> takePlaced() {
        return index.takePlaced();
    }

    public List<String> takeFreed() {
        return index.takeFreed();
    }

    public boolean hasNews() {
        return !encodes.isEmpty() || index.hasFreed();
    }

    /// What is in the cache, for a log.
    public String describe() {
        return index.describe();
    }

    /// The items of a request, for a log.
    public static String describe(RequestItems request) {
        return request.describe();
    }

    public int freeRows() {
        return index.free() + index.freeable();
    }
}
