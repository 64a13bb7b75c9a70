// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// Records on which ranks item loads succeeded and were reported, for all leaves of a scene: an
/// item that every rank has must not be loaded again. If a leaf throws before its report, the
/// completions of its loads are lost, so these may be loaded again.
///
/// Threads: any.
final class ChaosItemLoads {
    private record Load(String leaf, TransferId id) {}

    private record Item(String hash, int rank) {}

    private final Map<Load, Set<Integer>> loaded = new HashMap<>();
    private final Map<Load, Set<Integer>> reported = new HashMap<>();
    private final Map<Item, Load> latest = new HashMap<>();
    private final List<String> needless = new ArrayList<>();

    synchronized void loaded(String leaf, TransferId id, String hash, int rank) {
        var load = new Load(leaf, id);
        loaded.computeIfAbsent(load, _ -> new HashSet<>()).add(rank);
        latest.put(new Item(hash, rank), load);
    }

    /// A leaf reports an end; it need not be one of a load that it did.
    synchronized void reported(String leaf, TransferId id, int rank) {
        var load = new Load(leaf, id);
        if (loaded.getOrDefault(load, Set.of()).contains(rank)) {
            reported.computeIfAbsent(load, _ -> new HashSet<>()).add(rank);
        }
    }

    /// A rank is told to load what it has: it was loaded here before, and not on another rank.
    synchronized void again(String leaf, TransferId id, String hash, int rank, int ranks) {
        var before = latest.get(new Item(hash, rank));
        if (before == null || reported.getOrDefault(before, Set.of()).size() == ranks) {
            needless.add(leaf + " " + id + " of " + hash + " on rank " + rank + " after " + before);
        }
    }

    synchronized List<String> needless() {
        return List.copyOf(needless);
    }
}
