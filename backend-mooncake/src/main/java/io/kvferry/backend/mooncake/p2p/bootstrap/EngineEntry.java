// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import java.util.Map;
import java.util.Objects;

/// The workers of one prefiller engine as the bootstrap service lists them.
///
/// @param kvferry whether they are kvferry workers
/// @param incarnation of the engine; empty when unknown
/// @param tpSize 0 when unknown
/// @param ppSize 0 when unknown
/// @param grants whether their writes carry the capability that a decoder gives them
/// @param workers side channel address by [Rank]
public record EngineEntry(
        String engineId,
        boolean kvferry,
        String incarnation,
        int tpSize,
        int ppSize,
        boolean grants,
        Map<Rank, String> workers) {
    /// Position of a worker in its engine.
    public record Rank(int tp, int pp) implements Comparable<Rank> {
        @Override
        public int compareTo(Rank other) {
            return tp != other.tp ? Integer.compare(tp, other.tp) : Integer.compare(pp, other.pp);
        }
    }

    public EngineEntry {
        Objects.requireNonNull(engineId, "engineId");
        Objects.requireNonNull(incarnation, "incarnation");
        workers = Map.copyOf(workers);
    }

    /// Tensor-parallel size: the announced one, else what the list shows.
    public int effectiveTpSize() {
        return tpSize > 0
                ? tpSize
                : 1 + workers.keySet().stream().mapToInt(Rank::tp).max().orElse(-1);
    }

    /// Pipeline-parallel size: the announced one, else what the list shows.
    public int effectivePpSize() {
        return ppSize > 0
                ? ppSize
                : 1 + workers.keySet().stream().mapToInt(Rank::pp).max().orElse(-1);
    }

    /// Whether every rank is listed. A list without announced sizes is taken as complete when it
    /// has no hole.
    public boolean complete() {
        return !workers.isEmpty()
                && (long) workers.size() == (long) effectiveTpSize() * effectivePpSize();
    }
}
