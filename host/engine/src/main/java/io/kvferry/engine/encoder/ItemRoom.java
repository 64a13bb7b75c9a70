// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.ec.EcItem;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/// Who gets room in the encoder cache in a step.
///
/// Threading: scheduler thread only.
final class ItemRoom {
    private final EncoderIndex index;
    private final ItemReferences references;

    /// Somebody found no room for an item in the step that is being planned.
    private boolean shortOfRows;

    ItemRoom(EncoderIndex index, ItemReferences references) {
        this.index = index;
        this.references = references;
    }

    /// A step is planned anew.
    void beginStep() {
        shortOfRows = false;
    }

    /// Whether somebody found no room in this step.
    boolean isShort() {
        return shortOfRows;
    }

    /// What the cache has of an item.
    enum Access {
        /// The cache has the item, or somebody is about to fill it.
        SHARED,
        ABSENT,
        /// Not now, or never: then the request is broken.
        REFUSED
    }

    Access access(RequestItems request, EncoderInput input) {
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
            if (item.isStuck()) {
                references.fail(request, ErrorCode.TIMEOUT, ItemReferences.unansweredLoad(item));
            }
            return Access.REFUSED;
        }
        if (!item.outdated || item.users.contains(request)) {
            return Access.SHARED;
        }
        if (item.ready && item.users.stream().allMatch(user -> user.held)) {
            index.detach(item); // a hold may last, and nobody else may have what it holds
            return Access.ABSENT;
        }
        return Access.REFUSED;
    }

    /// Reserves room for all items of a request, or for none of them.
    boolean reserve(RequestItems request) {
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
        if (!missing.isEmpty() && (shortOfRows || !index.hasRoom(sizes(missing)))) {
            var needed = neededRoom(request, missing);
            references.dropAll(request);
            if (shortOfRows || !moves(request, missing)) {
                isShort(request, needed);
                return false;
            }
        }
        index.allocate(missing, request);
        for (int i = 0; i < inputs.size(); i++) {
            request.state(i).referenced = true;
        }
        request.reserved = true;
        return true;
    }

    private static int[] sizes(Map<String, Integer> rows) {
        return rows.values().stream().mapToInt(Integer::intValue).toArray();
    }

    /// Rows of what is missing, and of what is cached and not out of use.
    private int[] neededRoom(RequestItems request, Map<String, Integer> missing) {
        var needed = new LinkedHashMap<>(missing);
        for (var input : request.inputs) {
            index.find(input.hash())
                    .filter(item -> !item.isStuck())
                    .ifPresent(item -> needed.put(item.hash, item.rows));
        }
        return sizes(needed);
    }

    /// What is cached may lie where it leaves no room for the rest: it is dropped, and filled again
    /// elsewhere, if that makes room and nobody else has it.
    ///
    /// @param missing gets what is dropped
    private boolean moves(RequestItems request, Map<String, Integer> missing) {
        var anew = new LinkedHashMap<>(missing);
        for (var input : request.inputs) {
            index.find(input.hash())
                    .filter(index::isUnreferenced)
                    .ifPresent(item -> anew.put(item.hash, item.rows));
        }
        if (anew.size() == missing.size() || !index.hasRoom(sizes(anew))) {
            return false;
        }
        for (int i = 0; i < request.count(); i++) {
            var item = index.find(request.inputs.get(i).hash());
            if (item.isPresent() && !index.isUnreferenced(item.get())) {
                references.use(item.get(), request, i);
            }
        }
        anew.keySet().forEach(hash -> index.find(hash).ifPresent(index::remove));
        missing.putAll(anew);
        return true;
    }

    /// Whether there is no room for items of so many rows each. Then nobody gets any in the rest of
    /// the step, or small items would keep the room from a large one for ever.
    boolean isShortOf(RequestItems request, int... rows) {
        if (rows.length == 0 || (!shortOfRows && index.hasRoom(rows))) {
            return false;
        }
        isShort(request, rows);
        return true;
    }

    /// The request finds no room now; it fails when it never will.
    private void isShort(RequestItems request, int[] rows) {
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
    }

    /// The room of an item, which is filled from this step on.
    EncoderIndex.Item fill(EcItem item, RequestItems request, RequestItems.State state) {
        var room =
                index.find(item.hash())
                        .or(() -> index.allocate(item.hash(), item.embeddings(), request))
                        .orElseThrow();
        state.referenced = true;
        index.start(room);
        return room;
    }
}
