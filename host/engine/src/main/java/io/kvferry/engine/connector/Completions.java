// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/// Merges the completions of all ranks: each transfer comes out once, when the last rank has
/// reported it. A second report of the same (id, rank) changes nothing, before or after.
///
/// Threading: scheduler thread only.
final class Completions {
    /// Ids of ended transfers that duplicates are recognised by. Older ones are forgotten; a
    /// duplicate of a forgotten id comes out again and is then unknown to everybody.
    private static final int REMEMBERED = 8192;

    /// Transfers that some ranks have reported and others not. Far more than ever are open; a bound
    /// against connectors that report ids on one rank only.
    private static final int OPEN = 65_536;

    private final long allRanks;
    private final Metrics metrics;
    private final Predicate<TransferId> isLoading;
    private final Map<TransferId, Partial> open = bounded(OPEN);
    private final Map<TransferId, Boolean> ended = bounded(REMEMBERED);

    /// @param isLoading whether the engine has a load of this id open. Completions of other loads
    ///   are dropped: if they were kept, they would end a later load of the same id before its
    ///   ranks are done. Completions of saves are kept, since a hold may end before the engine has
    ///   opened it
    Completions(int worldSize, Metrics metrics, Predicate<TransferId> isLoading) {
        this.metrics = metrics;
        this.isLoading = isLoading;
        if (worldSize > Long.SIZE) {
            throw new IllegalArgumentException("at most 64 ranks, got " + worldSize);
        }
        allRanks = worldSize == Long.SIZE ? -1L : (1L << worldSize) - 1;
    }

    /// Forgets what came in first.
    static <V> Map<TransferId, V> bounded(int limit) {
        return new LinkedHashMap<>() {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<TransferId, V> eldest) {
                return size() > limit;
            }
        };
    }

    private static final class Partial {
        private long reported;
        private long bytes;
        private boolean failed;
        private boolean revoked;
        private boolean everything;
        private Failure failure = new Failure(ErrorCode.INTERNAL, "");
        private final List<Completion.FailedBlocks> blocks = new ArrayList<>();

        Completion.Result merged() {
            if (failed) {
                return new Completion.Failed(failure, everything ? List.of() : blocks);
            }
            return revoked ? new Completion.Revoked() : new Completion.Completed(bytes);
        }
    }

    /// Takes one rank's report; appends what thereby ended on all ranks to `merged`.
    void add(StepReport report, List<Completion> merged) {
        for (var completion : report.completions()) {
            add(completion.id(), report.rank(), completion.result(), merged);
        }
    }

    void add(TransferId id, int rank, Completion.Result result, List<Completion> merged) {
        if (ended.containsKey(id)) {
            metrics.count(Counter.COMPLETIONS_DUPLICATE);
            return;
        }
        if (id.direction() == TransferId.Direction.LOAD && !isLoading.test(whole(id))) {
            metrics.count(Counter.COMPLETIONS_UNMATCHED);
            return;
        }
        var partial = open.computeIfAbsent(id, _ -> new Partial());
        long bit = 1L << rank;
        if ((partial.reported & bit) != 0) {
            metrics.count(Counter.COMPLETIONS_DUPLICATE);
            return;
        }
        partial.reported |= bit;
        switch (result) {
            case Completion.Completed(long bytes) -> partial.bytes += bytes;
            case Completion.Failed(var failure, var blocks) -> {
                if (!partial.failed || givesWay(partial.failure.code())) {
                    partial.failed = true;
                    partial.failure = failure;
                }
                partial.everything |= blocks.isEmpty();
                partial.blocks.addAll(blocks);
            }
            case Completion.Revoked() -> {
                // a rank that gave up names no block, so nothing it was to bring can be trusted
                partial.revoked = true;
                partial.everything = true;
            }
        }
        if (partial.reported == allRanks) {
            open.remove(id);
            ended.put(id, true);
            merged.add(new Completion(id, Completion.ALL_RANKS, partial.merged()));
        }
    }

    /// If several ranks fail, the first failure is reported unless it has one of these codes:
    /// missing blocks can be looked up again, and a refused load never started.
    private static boolean givesWay(ErrorCode code) {
        return code == ErrorCode.MISS || code == ErrorCode.BACKPRESSURE;
    }

    /// A composite's children report under the id of the whole load, with their path in it.
    private static TransferId whole(TransferId id) {
        return id.child().isEmpty() ? id : id.forChild("");
    }

    /// The worker halves are gone and nothing is open. New halves may use the same ids.
    void clear() {
        open.clear();
        ended.clear();
    }

    /// Whether every rank has reported this transfer already.
    boolean hasEnded(TransferId id) {
        return ended.containsKey(id);
    }
}
