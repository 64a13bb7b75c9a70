// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.connector.GuardedEcScheduler;
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
import java.util.List;
import java.util.Optional;

/// Sees to it that the multimodal items of a step are in the encoder cache: cached already, loaded
/// through the connector, or encoded.
public final class EncoderScheduler {
    private final Settings settings;
    private final EncoderIndex index;
    private final ItemReferences references;
    private final ItemRoom room;
    private final GuardedEcScheduler ec;
    private final Telemetry telemetry;
    private final List<EncodeTask> encodes = new ArrayList<>();
    private int budget;

    /// A request whose encoder item cannot be provided.
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
        this.room = new ItemRoom(index, references);
        this.ec = ec;
        this.telemetry = telemetry;
    }

    /// Starts the planning of a step.
    public void beginStep() {
        budget = settings.stepRows;
        encodes.clear();
        room.beginStep();
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
        if (!request.reserved && !room.reserve(request)) {
            return room.isShort() ? Progress.NO_ROOM : Progress.UNDER_WAY;
        }
        boolean all = true;
        var inputs = request.inputs;
        for (int i = 0; i < inputs.size(); i++) {
            all &= available(request, i, inputs.get(i), now);
        }
        return all ? Progress.ALL_THERE : Progress.UNDER_WAY;
    }

    private boolean available(RequestItems request, int position, EncoderInput input, long now) {
        var state = request.state(position);
        switch (room.access(request, input)) {
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
        if (state.pending.isEarly(now)
                || (index.find(input.hash()).isEmpty()
                        && room.isShortOf(request, input.embeddings()))) {
            return false;
        }
        var item = item(request, position);
        var answer = state.mustEncode ? LookupResult.MISS : ec.lookup(item);
        return switch (answer) {
            case LookupResult.Pending pending -> {
                if (repeats(state, pending, item, now)) {
                    yield false;
                }
                state.mustEncode = true;
                yield encode(request, state, item, input);
            }
            case LookupResult.Hit hit -> {
                state.pending.clear();
                yield load(request, state, item, hit.mode());
            }
            case LookupResult.Miss() -> {
                state.pending.clear();
                yield encode(request, state, item, input);
            }
        };
    }

    private boolean repeats(
            RequestItems.State state, LookupResult.Pending pending, EcItem item, long now) {
        return ec.repeats(
                state.pending,
                pending,
                item.requestId(),
                "the lookup of item " + item.hash() + " is",
                settings.pendingLookup,
                now);
    }

    /// Announces a new request to the connector.
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

    private boolean load(
            RequestItems request, RequestItems.State state, EcItem item, LoadMode mode) {
        var cached = room.fill(item, request, state);
        cached.ready = mode == LoadMode.SYNC;
        var id = references.load(cached);
        if (!ec.onAllocated(item, Optional.of(id))) {
            references.revokeLoad(cached);
        }
        return cached.ready;
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
        budget -= item.embeddings();
        room.fill(item, request, state).ready = true;
        encodes.add(new EncodeTask(item, input));
        ec.onAllocated(item, Optional.empty());
        return true;
    }

    /// The request has computed up to `computed` and no longer needs the items before that
    /// position.
    public void computed(RequestItems request, int computed) {
        references.computed(request, computed);
    }

    /// The request is not running. Releases its references on ready items, since running requests
    /// may need the rows. Items that are being filled for it are not affected.
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

    /// The planned items have been encoded, except those reported to [#encodeFailed].
    public void endStep() {
        index.endStep();
        telemetry.metrics().add(Counter.ITEMS_ENCODED, encodes.size());
    }

    public void encodeFailed(String hash, Failure failure) {
        references.encodeFailed(hash, failure);
    }

    /// The workers are lost, with every item: the requests need all of their items again.
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
