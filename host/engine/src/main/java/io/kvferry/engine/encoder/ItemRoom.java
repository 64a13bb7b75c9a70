// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.encoder.EncoderIndex.Item;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.ec.EcItem;

import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/// Who gets room in the encoder cache in a step.
///
/// Threading: scheduler thread only.
final class ItemRoom {
    private final EncoderIndex index;
    private final ItemReferences references;

    /// An item found no room in the step that is being planned.
    private boolean shortOfRows;

    ItemRoom(EncoderIndex index, ItemReferences references) {
        this.index = index;
        this.references = references;
    }

    /// Starts the planning of a step.
    void beginStep() {
        shortOfRows = false;
    }

    /// Whether an item found no room in this step.
    boolean isShort() {
        return shortOfRows;
    }

    /// What the cache has of an item.
    enum Access {
        /// The item is cached, or about to be filled.
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
            index.detach(item); // a hold may last long, and its rows must not be shared
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
        if (!missing.isEmpty()
                && (shortOfRows || !index.hasRoom(sizes(missing, Set.of())))
                && !makesRoom(request, missing)) {
            shortOfRows = true;
            return false;
        }
        index.allocate(missing, request);
        for (int i = 0; i < inputs.size(); i++) {
            request.state(i).referenced = true;
        }
        request.reserved = true;
        return true;
    }

    private static int[] sizes(Map<String, Integer> missing, Collection<Item> more) {
        return IntStream.concat(
                        missing.values().stream().mapToInt(Integer::intValue),
                        more.stream().mapToInt(item -> item.rows))
                .toArray();
    }

    /// There is no room next to the request's cached items. If waiting for other requests cannot
    /// change that, its items are moved: dropped, and filled again elsewhere. If that cannot help
    /// either, the request fails.
    ///
    /// @param missing receives the dropped items
    /// @return whether there is room now; if not, the request has no references
    private boolean makesRoom(RequestItems request, Map<String, Integer> missing) {
        references.dropAll(request);
        var cached = cached(request);
        var moved = toMove(request, missing, cached);
        if (moved.isEmpty()) {
            failForRoom(request, sizes(missing, cached));
            return false;
        }
        if (shortOfRows) {
            return false;
        }
        var dropped = moved.get().stream().filter(index::isUnreferenced).toList();
        for (int i = 0; i < request.count(); i++) {
            var item = index.find(request.inputs.get(i).hash());
            if (item.isPresent() && !dropped.contains(item.get())) {
                references.use(item.get(), request, i);
            }
        }
        if (!index.hasRoom(sizes(missing, dropped))) {
            references.dropAll(request);
            return false;
        }
        for (var item : dropped) {
            index.remove(item);
            missing.put(item.hash, item.rows);
        }
        return true;
    }

    /// What the cache has of a request and is not out of use.
    private Set<Item> cached(RequestItems request) {
        return request.inputs.stream()
                .flatMap(input -> index.find(input.hash()).stream())
                .filter(item -> !item.isStuck())
                .collect(Collectors.toCollection(LinkedHashSet::new));
    }

    /// Items that must be moved so that the others have room once all other requests have ended:
    /// none if possible, else those for which the request brings the content, else all of them,
    /// which must then be loaded.
    ///
    /// @return empty when there will never be room
    private Optional<Set<Item>> toMove(
            RequestItems request, Map<String, Integer> missing, Set<Item> cached) {
        var withContent = new LinkedHashSet<>(cached);
        for (var input : request.inputs) {
            if (input.content().length == 0) {
                withContent.removeIf(item -> item.hash.equals(input.hash()));
            }
        }
        return Stream.of(Set.<Item>of(), withContent, cached)
                .filter(moved ->
                        index.mayEverHaveRoom(
                                item -> cached.contains(item) && !moved.contains(item),
                                sizes(missing, moved)))
                .findFirst();
    }

    /// Whether items of so many rows each find no room. Then no item gets room in the rest of the
    /// step; otherwise small items could starve a large one.
    boolean isShortOf(RequestItems request, int... rows) {
        if (rows.length == 0 || (!shortOfRows && index.hasRoom(rows))) {
            return false;
        }
        shortOfRows = true;
        if (!index.mayEverHaveRoom(_ -> false, rows)) {
            failForRoom(request, rows);
        }
        return true;
    }

    private void failForRoom(RequestItems request, int[] rows) {
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

    /// The room of an item, which is filled from this step on.
    Item fill(EcItem item, RequestItems request, RequestItems.State state) {
        var room =
                index.find(item.hash())
                        .or(() -> index.allocate(item.hash(), item.embeddings(), request))
                        .orElseThrow();
        state.referenced = true;
        index.start(room);
        return room;
    }
}
