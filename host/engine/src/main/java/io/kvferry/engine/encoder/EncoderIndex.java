// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.worker.CachePlace;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Predicate;

/// The contents of the encoder cache, by rows. An item without references stays until its rows are
/// needed, and is evicted oldest first; workers drop it when they are told.
///
/// A reference on a ready item keeps its rows. So only requests that can continue without further
/// rows hold references: running ones, ended ones under a hold, and those of an encode engine that
/// have room for all their items. Rows that are being filled stay until that has ended.
final class EncoderIndex {
    private final Consumer<String> onFreed;
    private final Map<String, Item> items = new HashMap<>();
    private final LinkedHashMap<String, Item> unreferenced = new LinkedHashMap<>();

    /// Items that only holds of ended requests refer to, and that others must not find any more:
    /// workers know them by their rows only.
    private final List<Item> detached = new ArrayList<>(0);

    private final List<Item> fresh = new ArrayList<>();
    private final RowMap rows;
    private List<String> freed = new ArrayList<>();
    private List<CachePlace> placed = new ArrayList<>();
    private int free;
    private int freeable;

    /// One cached item.
    static final class Item {
        final String hash;
        final int row;
        final int rows;
        final Set<RequestItems> users = new HashSet<>();

        /// The load that fills it, while that is open.
        @Nullable Transfer load;

        /// Whether the rows are there at the end of this step at the latest.
        boolean ready;

        /// Whether the rows are being filled or have been; until then they are only reserved.
        boolean started;

        /// A load is in progress whose item is no longer needed.
        boolean dying;

        /// The cache was cleared while the item was in use. It is not found by other requests, and
        /// is removed with its last reference.
        boolean outdated;

        /// A load and holds that were revoked long ago, and that a rank has not answered: the rows
        /// are out of use until the last of them has ended.
        final Set<Transfer> unanswered = new HashSet<>(0);

        /// Whether the rows are filled in the step that is being planned.
        private boolean fresh;

        boolean isStuck() {
            return !unanswered.isEmpty();
        }

        /// For a log.
        private String describe() {
            return " %s row %d+%d%s%s%s%s%s users %s"
                    .formatted(
                            hash,
                            row,
                            rows,
                            started ? " started" : "",
                            ready ? " ready" : "",
                            dying ? " dying" : "",
                            isStuck() ? " stuck" : "",
                            load == null ? "" : " loading",
                            users.stream().map(RequestItems::requestId).toList());
        }

        /// @param row the first of its rows
        Item(String hash, int row, int rows) {
            this.hash = hash;
            this.row = row;
            this.rows = rows;
        }
    }

    /// @param onFreed called with the hash of each dropped item, before its rows are reused
    EncoderIndex(int total, Consumer<String> onFreed) {
        this.rows = new RowMap(total);
        this.onFreed = onFreed;
        this.free = total;
    }

    Optional<Item> find(String hash) {
        return Optional.ofNullable(items.get(hash));
    }

    /// The item to which a request refers: what is in the cache under the hash may have taken the
    /// place of that.
    Optional<Item> find(String hash, RequestItems user) {
        for (var item : detached) {
            if (item.hash.equals(hash) && item.users.contains(user)) {
                return Optional.of(item);
            }
        }
        return find(hash);
    }

    /// Makes room for another item of the same hash. The rows stay with those who hold this one.
    void detach(Item item) {
        items.remove(item.hash);
        detached.add(item);
        freed.add(item.hash);
        onFreed.accept(item.hash);
    }

    void use(Item item, RequestItems user) {
        if (item.users.isEmpty() && unreferenced.remove(item.hash) != null) {
            freeable -= item.rows;
        }
        item.users.add(user);
    }

    /// Whether it has no references, so that it may be evicted.
    boolean isUnreferenced(Item item) {
        return unreferenced.get(item.hash) == item;
    }

    /// Whether [#allocate] would find room for items of so many rows each, all at once.
    boolean hasRoom(int... wanted) {
        return rows.find(wanted, item -> !isUnreferenced(item)) != null;
    }

    /// Whether such items will ever have room, given that some rows will not come back.
    ///
    /// @param stays which other items keep their rows
    boolean mayEverHaveRoom(Predicate<Item> stays, int... wanted) {
        return rows.find(wanted, stays.or(Item::isStuck)) != null;
    }

    /// Room for an item, by dropping the oldest unreferenced ones; empty when there is not enough.
    Optional<Item> allocate(String hash, int size, RequestItems user) {
        return allocate(Map.of(hash, size), user) ? find(hash) : Optional.empty();
    }

    /// Allocates rows for several items, or for none of them.
    ///
    /// @param wanted rows by hash
    boolean allocate(Map<String, Integer> wanted, RequestItems user) {
        var sizes = wanted.values().stream().mapToInt(Integer::intValue).toArray();
        if (!hasRoom(sizes)) {
            return false;
        }
        var places = rows.find(sizes, _ -> true);
        while (places == null) {
            remove(unreferenced.firstEntry().getValue());
            places = rows.find(sizes, _ -> true);
        }
        int next = 0;
        for (var hash : wanted.keySet()) {
            var item = new Item(hash, places[next], sizes[next]);
            next++;
            item.users.add(user);
            items.put(hash, item);
            rows.add(item);
            free -= item.rows;
        }
        return true;
    }

    /// The rows are filled from this step on.
    void start(Item item) {
        item.started = true;
        item.fresh = true;
        fresh.add(item);
        placed.add(new CachePlace(item.hash, item.row, item.rows));
    }

    /// The step has ended: rows that were filled in it may be taken from now on.
    void endStep() {
        for (var item : fresh) {
            item.fresh = false;
            if (items.get(item.hash) == item || detached.contains(item)) {
                retain(item);
            }
        }
        fresh.clear();
    }

    /// The request no longer needs the item, which stays cached for others.
    ///
    /// @return whether it had a reference
    boolean drop(Item item, RequestItems user) {
        boolean had = item.users.remove(user);
        if (had) {
            retain(item);
        }
        return had;
    }

    /// Keeps an item without references as evictable.
    void retain(Item item) {
        boolean unused = item.users.isEmpty() && item.ready && !item.fresh;
        if (unused && item.outdated) {
            remove(item);
        } else if (unused && unreferenced.putIfAbsent(item.hash, item) == null) {
            freeable += item.rows;
        }
    }

    /// The rows hold nothing, and stay reserved.
    void empty(Item item) {
        item.outdated = false;
        item.ready = false;
        item.started = false;
        item.dying = false;
        freed.add(item.hash);
        onFreed.accept(item.hash);
    }

    /// Takes an item out of the cache.
    void remove(Item item) {
        if (detached.remove(item)) {
            rows.remove(item);
            free += item.rows;
            return;
        }
        if (!items.remove(item.hash, item)) {
            return;
        }
        if (unreferenced.remove(item.hash) != null) {
            freeable -= item.rows;
        }
        rows.remove(item);
        free += item.rows;
        freed.add(item.hash);
        onFreed.accept(item.hash);
    }

    /// Rows that will not come back before a rank answers that should have long ago.
    int stuck() {
        int sum = 0;
        for (var item : items.values()) {
            sum += item.isStuck() ? item.rows : 0;
        }
        for (var item : detached) {
            sum += item.isStuck() ? item.rows : 0;
        }
        return sum;
    }

    /// Drops every unreferenced item, and the others as soon as they are that.
    void clear() {
        while (!unreferenced.isEmpty()) {
            remove(unreferenced.firstEntry().getValue());
        }
        items.values().forEach(item -> item.outdated = item.started);
    }

    /// The memory of the rows is lost: removes all items, whether in use, filled or not.
    void forgetAll() {
        items.clear();
        unreferenced.clear();
        detached.clear();
        fresh.clear();
        freed = new ArrayList<>();
        placed = new ArrayList<>();
        rows.clear();
        free = rows.total();
        freeable = 0;
    }

    boolean hasFreed() {
        return !freed.isEmpty();
    }

    /// Hashes dropped since the last call.
    List<String> takeFreed() {
        if (freed.isEmpty()) {
            return List.of();
        }
        var taken = freed;
        freed = new ArrayList<>();
        return taken;
    }

    /// Where the items lie that are filled from this step on; drains.
    List<CachePlace> takePlaced() {
        if (placed.isEmpty()) {
            return List.of();
        }
        var taken = placed;
        placed = new ArrayList<>();
        return taken;
    }

    /// For a log.
    String describe() {
        var text = new StringBuilder("free " + free + ", freeable " + freeable);
        items.values().forEach(item -> text.append("\n   ").append(item.describe()));
        detached.forEach(item -> text.append("\n    detached").append(item.describe()));
        return text.toString();
    }

    int free() {
        return free;
    }

    int freeable() {
        return freeable;
    }

    int total() {
        return rows.total();
    }
}
