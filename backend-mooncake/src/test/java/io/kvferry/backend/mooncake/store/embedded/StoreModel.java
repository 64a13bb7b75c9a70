// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.PutOptions;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SplittableRandom;

/// The store as a few plain lists, one call after the other: what [EmbeddedStore] has to answer.
/// All objects have one size, so that a segment has room while it has a free slot. Times are
/// nanoseconds, as the test counts them.
final class StoreModel {
    static final long SECOND = 1_000_000_000L;
    private static final long LEASE = 10 * SECOND;
    private static final double HIGH = 0.9;
    private static final double RATIO = 0.05;

    /// @param identity index of it
    record Key(int identity, String key) {}

    static final class Item {
        final Key key;
        int writer;
        final long put;
        final long start;
        final boolean hard;
        final long soft;
        final @Nullable String group;
        final Place place;
        final int content;
        boolean memory = true;
        boolean disk;
        boolean complete;
        long lease;
        long softEnd;

        Item(
                Key key,
                int writer,
                long put,
                long start,
                PutOptions options,
                @Nullable String group,
                Place place,
                int content) {
            this.key = key;
            this.writer = writer;
            this.put = put;
            this.start = start;
            this.hard = options.hardPin();
            this.soft = options.softPin().toNanos();
            this.group = group;
            this.place = place;
            this.content = content;
        }
    }

    /// A mounted segment.
    static final class Place {
        final String name;
        final int slots;
        final int owner;
        int used;

        Place(String name, int slots, int owner) {
            this.name = name;
            this.slots = slots;
            this.owner = owner;
        }
    }

    private record Group(int identity, String name) {}

    long now;
    private final SplittableRandom random;
    private final List<Place> places = new ArrayList<>();
    private final Map<Key, Item> items = new LinkedHashMap<>();
    private final Map<Group, Long> groupLeases = new LinkedHashMap<>();
    private final List<Item> discarded = new ArrayList<>();
    private final Map<Integer, Long> pings = new LinkedHashMap<>();
    private boolean evictionWanted;
    private long nextSweep;
    private long puts;

    /// @param random as that of the store, from the same state on
    StoreModel(SplittableRandom random) {
        this.random = random;
    }

    int objects() {
        return items.size();
    }

    int usedSlots() {
        return places.stream().mapToInt(place -> place.used).sum();
    }

    List<Key> keys() {
        return List.copyOf(items.keySet());
    }

    void mount(String name, int slots, int owner) {
        places.add(new Place(name, slots, owner));
    }

    void unmount(String name) {
        drop(places.stream().filter(place -> place.name.equals(name)).toList());
    }

    private void drop(List<Place> gone) {
        places.removeAll(gone);
        items.values().stream()
                .filter(item -> item.memory && gone.contains(item.place))
                .toList()
                .forEach(this::loseMemory);
        discarded.removeIf(item -> gone.contains(item.place));
    }

    private void erase(Item item) {
        items.remove(item.key, item);
        item.place.used -= item.memory ? 1 : 0;
        forgetGroup(item);
    }

    /// What is on disk stays.
    private void loseMemory(Item item) {
        if (item.disk) {
            item.memory = false;
            item.place.used--;
        } else {
            erase(item);
        }
    }

    /// All that is complete is written to disk.
    void offload() {
        items.values().forEach(item -> item.disk |= item.complete);
    }

    /// The model of a store that is opened anew over the same disk tier, at time 0.
    StoreModel restarted(SplittableRandom choices) {
        var next = new StoreModel(choices);
        items.values().stream()
                .filter(item -> item.disk)
                .forEach(item -> {
                    item.memory = false;
                    item.lease = 0;
                    item.softEnd = 0;
                    item.writer = -1;
                    next.items.put(item.key, item);
                });
        return next;
    }

    private void forgetGroup(Item item) {
        if (item.group != null && members(item.key.identity, item.group).isEmpty()) {
            groupLeases.remove(new Group(item.key.identity, item.group));
        }
    }

    private List<Item> members(int identity, String group) {
        return items.values().stream()
                .filter(item -> item.key.identity == identity && group.equals(item.group))
                .toList();
    }

    private @Nullable Place choose(List<String> preferred) {
        if (places.size() == 1) {
            return places.getFirst().used < places.getFirst().slots ? places.getFirst() : null;
        }
        for (String name : preferred) {
            for (Place place : places) {
                if (place.name.equals(name) && place.used < place.slots) {
                    return place;
                }
            }
        }
        if (places.isEmpty()) {
            return null;
        }
        int start = random.nextInt(places.size());
        for (int i = 0; i < places.size(); i++) {
            Place place = places.get((start + i) % places.size());
            if (place.used < place.slots) {
                return place;
            }
        }
        return null;
    }

    int start(Key key, int writer, PutOptions options, @Nullable String group, int content) {
        Item known = items.get(key);
        if (known != null && (known.complete || now - known.start <= 30 * SECOND)) {
            return -705;
        }
        if (known != null) {
            discard(known);
        }
        puts++;
        Place place = choose(options.preferredSegments());
        if (place == null) {
            evictionWanted |= !places.isEmpty();
            return -200;
        }
        place.used++;
        items.put(key, new Item(key, writer, puts, now, options, group, place, content));
        return 0;
    }

    private void discard(Item item) {
        items.remove(item.key);
        discarded.add(item);
        forgetGroup(item);
    }

    /// Number of the put of a key that has not ended; 0 for none.
    long putOf(Key key) {
        Item item = items.get(key);
        return item == null ? 0 : item.put;
    }

    private int mayEnd(@Nullable Item item, int writer, long put) {
        return item == null ? -704 : item.writer != writer ? -601 : item.put == put ? 0 : -700;
    }

    int end(Key key, int writer, long put) {
        Item item = items.get(key);
        int code = mayEnd(item, writer, put);
        if (code == 0 && item != null && !item.complete) {
            item.complete = true;
            item.lease = now;
            item.softEnd = item.soft == 0 ? 0 : now + item.soft;
        }
        if (code != 0) {
            releaseDiscarded(writer, put);
        }
        return code;
    }

    private void releaseDiscarded(int writer, long put) {
        free(discarded.stream().filter(item -> item.writer == writer && item.put == put).toList());
    }

    int revoke(Key key, int writer, long put) {
        Item item = items.get(key);
        int code = mayEnd(item, writer, put);
        if (code == 0 && item != null && item.complete) {
            return -700;
        }
        if (code == 0) {
            erase(Objects.requireNonNull(item));
        } else {
            releaseDiscarded(writer, put);
        }
        return code;
    }

    private void grant(Item item) {
        item.lease = Math.max(item.lease, now + LEASE);
        if (item.group != null) {
            var group = new Group(item.key.identity, item.group);
            long lease = groupLeases.getOrDefault(group, 0L);
            if (lease - now <= LEASE / 2) {
                groupLeases.put(group, Math.max(lease, now + LEASE));
            }
        }
    }

    private long lease(Item item) {
        return item.group == null
                ? item.lease
                : Math.max(
                        item.lease,
                        groupLeases.getOrDefault(new Group(item.key.identity, item.group), 0L));
    }

    /// The content of an object, or a code.
    int get(Key key) {
        Item item = items.get(key);
        if (item == null) {
            return -704;
        }
        if (!item.complete) {
            return -703;
        }
        grant(item);
        return item.content;
    }

    int exists(Key key, boolean lease) {
        Item item = items.get(key);
        if (item == null || !item.complete) {
            return 0;
        }
        if (lease) {
            grant(item);
        } else {
            item.lease = Math.max(item.lease, now);
        }
        return 1;
    }

    int remove(Key key, boolean force) {
        Item item = items.get(key);
        if (item == null) {
            return -704;
        }
        if (!item.complete) {
            return -703;
        }
        if (!force && now < lease(item)) {
            return -706;
        }
        erase(item);
        return 0;
    }

    int removeAll(int identity, boolean force) {
        // A group whose members are removed one after the other keeps its lease to the last one.
        var chosen =
                items.values().stream()
                        .filter(item -> item.key.identity == identity && item.complete)
                        .filter(item -> force || now >= lease(item))
                        .toList();
        chosen.forEach(this::erase);
        return chosen.size();
    }

    void watch(int client) {
        pings.put(client, now);
    }

    boolean ping(int client) {
        return pings.computeIfPresent(client, (_, _) -> now) != null;
    }

    long tick() {
        for (int client : List.copyOf(pings.keySet())) {
            if (now - Objects.requireNonNull(pings.get(client)) > 10 * SECOND) {
                pings.remove(client);
                drop(places.stream().filter(place -> place.owner == client).toList());
            }
        }
        boolean open = items.values().stream().anyMatch(item -> !item.complete);
        if (open && now >= nextSweep) {
            nextSweep = now + SECOND;
            items.values().stream()
                    .filter(item -> !item.complete && now - item.start > 30 * SECOND)
                    .toList()
                    .forEach(this::discard);
        }
        int slots = places.stream().mapToInt(place -> place.slots).sum();
        if (slots > 0 && (usedSlots() > HIGH * slots || evictionWanted)) {
            return evict((double) usedSlots() / slots);
        }
        release();
        return 0;
    }

    private int release() {
        var due = discarded.stream().filter(item -> now - item.start >= 600 * SECOND).toList();
        free(due);
        return due.size();
    }

    private void free(List<Item> over) {
        discarded.removeAll(over);
        over.forEach(item -> item.place.used--);
    }

    private long evict(double used) {
        double target = Math.max(RATIO, used - HIGH + RATIO);
        double lower = Math.max(target / 2, used - HIGH);
        var all =
                items.values().stream()
                        .filter(item -> item.complete && !item.hard && item.memory)
                        .toList();
        if (all.isEmpty()) {
            evictionWanted = false;
            release();
            return 0;
        }
        var free = all.stream().filter(item -> now >= lease(item)).toList();
        var plain = new ArrayList<>(free.stream().filter(item -> now >= item.softEnd).toList());
        var soft = new ArrayList<>(free.stream().filter(item -> now < item.softEnd).toList());
        var stamps = new LinkedHashMap<Item, Long>();
        free.forEach(item -> stamps.put(item, lease(item)));
        long evicted = take(plain, stamps, (long) Math.ceil(all.size() * target), false);
        int released = release();
        long missing = (long) Math.ceil(all.size() * lower) - evicted - released;
        missing = Math.min(missing, plain.size() + soft.size());
        if (missing > 0) {
            long fromPlain = Math.min(missing, plain.size());
            long more = take(plain, stamps, fromPlain, true);
            if (missing > fromPlain) {
                more += take(soft, stamps, missing - more, true);
            }
            evicted += more;
        }
        if (evicted + released > 0) {
            evictionWanted = false;
        }
        return evicted;
    }

    private long take(List<Item> from, Map<Item, Long> stamps, long count, boolean softToo) {
        from.sort(Comparator.comparing(item -> Objects.requireNonNull(stamps.get(item))));
        long evicted = 0;
        while (evicted < count && !from.isEmpty()) {
            int last = (int) Math.min(count - evicted, from.size()) - 1;
            long cut = Objects.requireNonNull(stamps.get(from.get(last)));
            var chosen =
                    from.stream()
                            .filter(item -> Objects.requireNonNull(stamps.get(item)) <= cut)
                            .toList();
            from.removeAll(chosen);
            for (Item item : chosen) {
                evicted += evictWithGroup(item, softToo);
            }
        }
        return evicted;
    }

    private long evictWithGroup(Item item, boolean softToo) {
        if (items.get(item.key) != item) {
            return 0;
        }
        var members = item.group == null ? List.of(item) : members(item.key.identity, item.group);
        if (members.stream().anyMatch(member -> now < lease(member))) {
            return 0;
        }
        var going =
                members.stream()
                        .filter(member -> member.complete && !member.hard && member.memory)
                        .filter(member -> softToo || now >= member.softEnd)
                        .toList();
        going.forEach(this::loseMemory);
        return going.size();
    }
}
