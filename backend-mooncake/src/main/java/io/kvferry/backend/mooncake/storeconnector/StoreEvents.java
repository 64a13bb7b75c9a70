// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/// What the scheduler half announces: blocks that were stored and can be read, and those that went.
///
/// Threading: the scheduler thread.
final class StoreEvents {
    private final String instance;
    private final Store store;
    private final BlockKeys keys;
    private final StoreQueries queries;
    private List<CacheEvent> events = new ArrayList<>();
    private boolean cleared;

    StoreEvents(String instance, Store store, BlockKeys keys, StoreQueries queries) {
        this.instance = instance;
        this.store = store;
        this.keys = keys;
        this.queries = queries;
        store.removals(); // from here on they are listed
    }

    /// Everything is being removed: nothing is announced until [#resume].
    void clear() {
        cleared = true;
        events.add(new CacheEvent.Cleared(instance));
    }

    void resume() {
        store.removals(); // covered by Cleared: subscribers have dropped all of them
        cleared = false;
    }

    /// Announces what a save has stored: of each group the blocks that it had, and of these the
    /// ones that can be read now. Others may have been refused, or another writer has not finished
    /// them.
    ///
    /// @param known whether all ranks have stored all parts that the move has
    void announce(Optional<BlockHash> parent, StorePlan.Move move, boolean known) {
        if (known && !queries.areImmediate()) { // the workers have asked
            int parts = 0;
            for (int[] ids : move.ids()) {
                for (int id : ids) {
                    parts += id == BlockTable.NO_BLOCK ? 0 : 1;
                }
            }
            var all = new int[parts * keys.ranks()];
            Arrays.fill(all, 1);
            announce(parent, move, all);
            return;
        }
        var names = new ArrayList<String>();
        int ranks = keys.ranks();
        for (int i = 0; i < move.hashes().size(); i++) {
            List<String> all = Arrays.asList(keys.all(move.hashes().get(i)));
            for (int group = 0; group < move.ids().length; group++) {
                if (move.ids()[group][i] != BlockTable.NO_BLOCK) {
                    names.addAll(all.subList(group * ranks, (group + 1) * ranks));
                }
            }
        }
        queries.ask(() -> present(names), new int[0], results -> announce(parent, move, results));
    }

    private void announce(Optional<BlockHash> parent, StorePlan.Move move, int[] results) {
        if (results.length == 0 || cleared) {
            return;
        }
        var stored = new BitSet[move.ids().length];
        Arrays.setAll(stored, _ -> new BitSet());
        int at = 0;
        for (int i = 0; i < move.hashes().size(); i++) {
            for (int group = 0; group < stored.length; group++) {
                if (move.ids()[group][i] != BlockTable.NO_BLOCK) {
                    boolean all = true;
                    for (int rank = 0; rank < keys.ranks(); rank++) {
                        all &= results[at++] == 1;
                    }
                    stored[group].set(i, all);
                }
            }
        }
        for (int group = 0; group < stored.length; group++) {
            announce(parent, move.hashes(), group, stored[group]);
        }
    }

    private void announce(
            Optional<BlockHash> parent, List<BlockHash> hashes, int group, BitSet stored) {
        for (int from = stored.nextSetBit(0); from >= 0; ) {
            int to = stored.nextClearBit(from);
            var before = from == 0 ? parent : Optional.of(hashes.get(from - 1));
            events.add(
                    new CacheEvent.Stored(
                            instance, Tier.HOST, group, before, hashes.subList(from, to)));
            from = stored.nextSetBit(to);
        }
    }

    private int[] present(List<String> names) {
        var results = new int[names.size()];
        store.exists(names, false, results);
        return results;
    }

    List<CacheEvent> drain() {
        List<CacheEvent> drained = events;
        events = new ArrayList<>();
        addRemovals(drained);
        return drained;
    }

    /// Removals are added last. If a block was removed and stored again in between, a router then
    /// treats it as absent. It never treats a removed block as present.
    private void addRemovals(List<CacheEvent> into) {
        var removals = store.removals();
        if (cleared) {
            return;
        }
        if (removals.all()) {
            into.add(new CacheEvent.Cleared(instance));
        }
        var byGroup = new TreeMap<Integer, Set<BlockHash>>();
        for (String key : removals.keys()) {
            keys.part(key)
                    .ifPresent(part ->
                            byGroup.computeIfAbsent(part.group(), _ -> new LinkedHashSet<>())
                                    .add(part.hash()));
        }
        byGroup.forEach((group, hashes) ->
                into.add(new CacheEvent.Removed(instance, Tier.HOST, group, List.copyOf(hashes))));
    }
}
