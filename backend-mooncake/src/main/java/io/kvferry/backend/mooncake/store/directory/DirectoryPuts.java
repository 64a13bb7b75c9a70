// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ThreadLocalRandom;

/// Stores each object at one owner: at a preferred one, otherwise at the one with more room of two
/// drawn at random. If an owner has no room or does not answer, the next one is tried. Objects of a
/// group go to the same owner, drawn by the name of the group. An object that another owner already
/// has counts as stored.
///
/// Threading: any thread.
final class DirectoryPuts {
    /// With which another owner is tried.
    private static final Set<StoreCode> ELSEWHERE =
            EnumSet.of(
                    StoreCode.NO_AVAILABLE_HANDLE,
                    StoreCode.BUFFER_OVERFLOW,
                    StoreCode.RPC_FAIL,
                    StoreCode.RPC_TIMEOUT,
                    StoreCode.TRANSFER_FAIL,
                    StoreCode.CLIENT_NOT_FOUND,
                    StoreCode.OBJECT_NOT_FOUND,
                    StoreCode.UNAVAILABLE_IN_CURRENT_STATUS,
                    StoreCode.INTERNAL);

    private static final int NO_ROOM = StoreCode.NO_AVAILABLE_HANDLE.number();

    private final Lookup lookup;
    private final OwnerBatches batches;
    private final KeyHints hints;
    private final Duration limit;
    private volatile Optional<Member> full = Optional.empty();

    /// @param limit after which no other owner is tried
    DirectoryPuts(Lookup lookup, OwnerBatches batches, KeyHints hints, Duration limit) {
        this.lookup = lookup;
        this.batches = batches;
        this.hints = hints;
        this.limit = limit;
    }

    /// The owner that last had no room; empty once a later put has found room.
    Optional<Member> full() {
        return full;
    }

    void put(List<Member> there, StoreBatch batch, PutOptions options, int[] results) {
        long begin = System.nanoTime();
        int count = batch.size();
        var codes = new long[count];
        var open = new boolean[count];
        Arrays.fill(open, true);
        if (there.size() > 1 && options.areValid()) {
            leaveOutStored(there, batch, open);
        }
        var orders = new Orders(there, options);
        var fullSomewhere = new boolean[count];
        boolean more = true;
        for (int attempt = 0; attempt < there.size() && more; attempt++) {
            int number = attempt;
            batches.move(
                    batch,
                    i -> open[i] ? orders.of(batch.group(i)).get(number) : null,
                    (store, part, answers) -> put(store, part, options, answers),
                    codes);
            more = false;
            for (int i = 0; i < count; i++) {
                if (open[i]) {
                    Member member = orders.of(batch.group(i)).get(attempt);
                    open[i] = codes[i] != 0 && ELSEWHERE.contains(StoreCode.of(codes[i]));
                    more |= open[i];
                    if (codes[i] == NO_ROOM) {
                        fullSomewhere[i] = true;
                        full = Optional.of(member);
                    } else if (codes[i] == 0) {
                        full = fullSomewhere[i] ? full : Optional.empty();
                        hints.seen(batch.key(i), member.segment());
                    }
                }
            }
            more &= System.nanoTime() - begin < limit.toNanos();
        }
        for (int i = 0; i < count; i++) {
            results[i] = open[i] && fullSomewhere[i] ? NO_ROOM : (int) codes[i];
        }
    }

    private static void put(
            RemoteStore store, StoreBatch batch, PutOptions options, long[] answers) {
        var results = new int[batch.size()];
        store.put(batch, options, results);
        for (int i = 0; i < results.length; i++) {
            answers[i] = results[i];
        }
    }

    /// Where an owner has the object it must not come to another one: objects do not change.
    private void leaveOutStored(List<Member> there, StoreBatch batch, boolean[] open) {
        var keys = new ArrayList<String>(batch.size());
        for (int i = 0; i < batch.size(); i++) {
            keys.add(batch.key(i));
        }
        var found = lookup.find(there, keys, Lookup.Kind.EXISTS);
        for (int i = 0; i < open.length; i++) {
            open[i] = found.at()[i] == null || batch.bytes(i) == 0;
        }
    }

    /// In which order owners are tried, one for each group.
    private static final class Orders {
        private final List<Member> there;
        private final PutOptions options;
        private final Map<String, List<Member>> byGroup = new HashMap<>();
        private @Nullable List<Member> ungrouped;

        Orders(List<Member> there, PutOptions options) {
            this.there = there;
            this.options = options;
        }

        List<Member> of(@Nullable String group) {
            if (group != null) {
                return byGroup.computeIfAbsent(group, this::grouped);
            }
            List<Member> known = ungrouped;
            if (known == null) {
                known = preferredFirst(drawn());
                ungrouped = known;
            }
            return known;
        }

        private List<Member> grouped(String group) {
            var sorted = new ArrayList<>(there);
            sorted.sort(
                    Comparator.comparingLong((Member member) -> weight(group, member)).reversed());
            return preferredFirst(sorted);
        }

        /// Every user draws the same, and an owner that comes or goes moves only its own groups.
        private static long weight(String group, Member member) {
            long seed = 31L * group.hashCode() + Objects.hashCode(member.segment());
            return new SplittableRandom(seed).nextLong();
        }

        private List<Member> drawn() {
            int count = there.size();
            var order = new ArrayList<Member>(count);
            int start = ThreadLocalRandom.current().nextInt(count);
            for (int i = 0; i < count; i++) {
                order.add(there.get((start + i) % count));
            }
            if (count > 1) {
                int other = ThreadLocalRandom.current().nextInt(1, count);
                Member second = order.remove(other);
                boolean roomier = second.free() > order.getFirst().free();
                order.add(roomier ? 0 : 1, second);
            }
            return order;
        }

        private List<Member> preferredFirst(List<Member> order) {
            var sorted = new ArrayList<Member>(order.size());
            for (String segment : options.preferredSegments()) {
                for (Member member : order) {
                    if (member.segment().equals(segment) && !sorted.contains(member)) {
                        sorted.add(member);
                    }
                }
            }
            for (Member member : order) {
                if (!sorted.contains(member)) {
                    sorted.add(member);
                }
            }
            return sorted;
        }
    }
}
