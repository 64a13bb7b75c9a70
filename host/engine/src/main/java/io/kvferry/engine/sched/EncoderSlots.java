// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// What is in the encoder cache, counted in rows. An item without references stays until its rows
/// are needed, oldest first; workers drop it when they are told.
final class EncoderSlots {
    private final int total;
    private final Map<String, Item> items = new HashMap<>();
    private final LinkedHashMap<String, Item> unreferenced = new LinkedHashMap<>();
    private List<String> freed = new ArrayList<>();
    private int free;
    private int freeable;

    /// One cached item.
    static final class Item {
        final String hash;
        final String salt;
        final int rows;
        final Set<RequestState> users = new HashSet<>();

        /// Whether the rows are there at the end of this step at the latest.
        boolean ready;

        /// A load is under way that nobody wants any more.
        boolean dying;

        Item(String hash, String salt, int rows) {
            this.hash = hash;
            this.salt = salt;
            this.rows = rows;
        }
    }

    EncoderSlots(int total) {
        this.total = total;
        this.free = total;
    }

    Optional<Item> find(String hash) {
        return Optional.ofNullable(items.get(hash));
    }

    void use(Item item, RequestState user) {
        if (item.users.isEmpty() && unreferenced.remove(item.hash) != null) {
            freeable -= item.rows;
        }
        item.users.add(user);
    }

    /// Room for an item, by dropping the oldest unreferenced ones; empty when there is not enough.
    Optional<Item> allocate(String hash, int rows, RequestState user) {
        if (rows > free + freeable) {
            return Optional.empty();
        }
        while (rows > free) {
            remove(unreferenced.firstEntry().getValue());
        }
        var item = new Item(hash, user.request.cacheSalt(), rows);
        item.users.add(user);
        items.put(hash, item);
        free -= rows;
        return Optional.of(item);
    }

    /// The request no longer needs the item, which stays cached for others.
    void drop(Item item, RequestState user) {
        if (item.users.remove(user) && item.users.isEmpty() && item.ready) {
            unreferenced.put(item.hash, item);
            freeable += item.rows;
        }
    }

    /// Takes an item out of the cache.
    void remove(Item item) {
        if (!items.remove(item.hash, item)) {
            return;
        }
        if (unreferenced.remove(item.hash) != null) {
            freeable -= item.rows;
        }
        free += item.rows;
        freed.add(item.hash);
    }

    /// Drops every unreferenced item.
    void clear() {
        while (!unreferenced.isEmpty()) {
            remove(unreferenced.firstEntry().getValue());
        }
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

    int free() {
        return free;
    }

    int freeable() {
        return freeable;
    }

    int total() {
        return total;
    }
}
