// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.connector.Transfer.Kind;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.List;

/// The references of requests on items of the encoder cache. Handles the end of an item's load, its
/// failure, and the release of the last reference.
final class ItemReferences {
    private final EncoderIndex index;
    private final Transfers transfers;
    private final Metrics metrics;
    private final boolean encodeOnly;
    private final List<EncoderScheduler.Broken> broken = new ArrayList<>();
    private int loads;

    /// @param encodeOnly whether requests reserve room for all their items at once
    ItemReferences(EncoderIndex index, Transfers transfers, Metrics metrics, boolean encodeOnly) {
        this.index = index;
        this.transfers = transfers;
        this.metrics = metrics;
        this.encodeOnly = encodeOnly;
    }

    /// The load of one item.
    private final class ItemLoad extends Transfer {
        private final EncoderIndex.Item item;

        ItemLoad(TransferId id, EncoderIndex.Item item) {
            super(id, Kind.LOAD);
            this.item = item;
        }

        @Override
        protected void ended(Completion.Result result) {
            item.unanswered.remove(this);
            if (result instanceof Completion.Completed) {
                metrics.count(Counter.ITEMS_LOADED);
                arrived(item);
            } else {
                metrics.count(Counter.ITEM_LOADS_FAILED);
                lost(item);
            }
        }

        @Override
        protected void discard() {
            index.remove(item);
        }

        /// A synchronous load that was not reported with its step continues like an asynchronous
        /// one.
        @Override
        protected void late() {
            item.ready = false;
        }

        /// Requests can no longer wait for the item, and its rows cannot be reused.
        @Override
        protected void unanswered(Failure failure) {
            item.unanswered.add(this);
            item.dying = true;
            for (var user : item.users) {
                fail(user, ErrorCode.TIMEOUT, unansweredLoad(item));
            }
        }
    }

    /// The items of an ended request, kept for the connector.
    private final class ItemHold extends Transfer {
        private final RequestItems request;

        ItemHold(TransferId id, RequestItems request) {
            super(id, Kind.HOLD);
            this.request = request;
        }

        @Override
        protected void ended(Completion.Result result) {
            items().forEach(item -> item.unanswered.remove(this));
            dropAll(request);
        }

        @Override
        protected void discard() {
            dropAll(request);
        }

        @Override
        protected void unanswered(Failure failure) {
            items().forEach(item -> item.unanswered.add(this));
        }

        private List<EncoderIndex.Item> items() {
            return request.inputs.stream()
                    .flatMap(input -> index.find(input.hash(), request).stream())
                    .filter(item -> item.users.contains(request))
                    .toList();
        }
    }

    static String unansweredLoad(EncoderIndex.Item item) {
        return "the load of item " + item.hash + " was revoked, and not every rank has answered";
    }

    /// Starts the load of an item. Numbered through, since a hash may be dropped and loaded again.
    TransferId load(EncoderIndex.Item item) {
        var load =
                new ItemLoad(
                        new TransferId(item.hash, ++loads, TransferId.Direction.LOAD, ""), item);
        item.load = load;
        transfers.openLoad(load);
        return load.id();
    }

    /// The items of an ended request stay for the connector, unless the hold has ended already.
    void hold(TransferId id, RequestItems request, Deadline deadline) {
        request.held = transfers.openHold(new ItemHold(id, request), deadline);
        if (!request.held) {
            dropAll(request);
        }
    }

    /// The connector did not take the load of an item over.
    void revokeLoad(EncoderIndex.Item item) {
        if (item.load != null) {
            transfers.revoke(item.load);
        }
        item.ready = false;
    }

    /// The request cannot go on.
    void fail(RequestItems request, ErrorCode code, String message) {
        broken.add(new EncoderScheduler.Broken(request.requestId, new Failure(code, message)));
    }

    void use(EncoderIndex.Item item, RequestItems request, int position) {
        index.use(item, request);
        request.state(position).referenced = true;
    }

    /// The request has computed up to `computed`: it no longer needs the items before that.
    void computed(RequestItems request, int computed) {
        for (int i = 0; i < request.count(); i++) {
            var input = request.inputs.get(i);
            if (request.state(i).referenced && input.position() + input.embeddings() <= computed) {
                drop(request, i);
            }
        }
    }

    /// Releases references on ready items from index `first` on. Items that are being filled for
    /// the request are not affected.
    void dropReady(RequestItems request, int first) {
        for (int i = first; i < request.count(); i++) {
            if (request.state(i).referenced
                    && index.find(request.inputs.get(i).hash())
                            .filter(item -> item.ready)
                            .isPresent()) {
                drop(request, i);
            }
        }
    }

    void dropAll(RequestItems request) {
        request.reserved = false;
        for (int i = 0; i < request.count(); i++) {
            if (request.state(i).referenced) {
                drop(request, i);
            }
        }
    }

    private void drop(RequestItems request, int position) {
        request.state(position).referenced = false;
        var hash = request.inputs.get(position).hash();
        if (!request.refersTo(hash)) { // else it is the same item at another position
            index.find(hash, request)
                    .filter(item -> index.drop(item, request))
                    .filter(item -> item.users.isEmpty() && !item.ready)
                    .ifPresent(this::unwanted);
        }
    }

    /// The last reference on an item that is not ready is gone.
    private void unwanted(EncoderIndex.Item item) {
        if (!item.started) {
            index.remove(item);
            return;
        }
        item.dying = true;
        if (item.load != null) {
            transfers.revoke(item.load);
        }
    }

    /// The item has been loaded. Requests that now wait for something else have no reference on it;
    /// it stays cached for them until its rows are needed.
    private void arrived(EncoderIndex.Item item) {
        item.load = null;
        if (item.dying) {
            leaveToHolds(item);
            return;
        }
        item.ready = true;
        if (!encodeOnly) {
            item.users.removeIf(user -> {
                if (user.waits()) {
                    user.forget(item.hash);
                    return true;
                }
                return false;
            });
        }
        index.retain(item);
    }

    /// The item could not be loaded; requests that need it must encode it. An encode engine keeps
    /// the room for it, since it is reserved together with that of the requests' other items.
    private void lost(EncoderIndex.Item item) {
        item.load = null;
        item.users.forEach(user -> user.mustEncode(item.hash));
        if (encodeOnly && !item.users.isEmpty() && !item.dying) {
            index.empty(item);
            return;
        }
        leaveToHolds(item);
    }

    /// The item is for no request any more. Its rows come back, unless ended requests have it whose
    /// items a connector holds: it may read them until its last hold has ended.
    private void leaveToHolds(EncoderIndex.Item item) {
        item.users.removeIf(user -> {
            if (!user.held) {
                user.forget(item.hash);
            }
            return !user.held;
        });
        if (item.users.isEmpty()) {
            index.remove(item);
            return;
        }
        item.dying = false;
        item.ready = true; // nothing fills the rows any more
        item.outdated = true; // it goes with its last reference
        index.detach(item);
    }

    void encodeFailed(String hash, Failure failure) {
        index.find(hash)
                .ifPresent(item -> {
                    for (var user : item.users) {
                        broken.add(new EncoderScheduler.Broken(user.requestId, failure));
                    }
                    leaveToHolds(item);
                });
    }

    List<EncoderScheduler.Broken> takeBroken() {
        if (broken.isEmpty()) {
            return List.of();
        }
        var taken = List.copyOf(broken);
        broken.clear();
        return taken;
    }
}
