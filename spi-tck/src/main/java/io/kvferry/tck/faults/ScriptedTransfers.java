// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BiFunction;
import java.util.function.BiPredicate;

/// When and how the loads of a scripted connector end, and what else it reports; for all its ranks.
/// Plans are lists of ids.
///
/// Threading: scripted from any thread; a [Rank] belongs to its step thread.
final class ScriptedTransfers {
    private volatile BiFunction<TransferId, Integer, Completion.Result> result =
            (_, _) -> new Completion.Completed(0);
    private volatile BiPredicate<TransferId, Integer> ready = (_, _) -> true;
    private final Map<Integer, ConcurrentLinkedQueue<Completion>> extra = new ConcurrentHashMap<>();

    /// How a load ends on a rank, asked once the load is ready.
    void onLoad(BiFunction<TransferId, Integer, Completion.Result> answer) {
        result = answer;
    }

    /// Whether a load ends on a rank in this step; asked once per step until it says yes.
    void ready(BiPredicate<TransferId, Integer> answer) {
        ready = answer;
    }

    /// Puts a completion into the next report of its rank.
    void complete(TransferId id, int rank, Completion.Result how) {
        extra.computeIfAbsent(rank, _ -> new ConcurrentLinkedQueue<>())
                .add(new Completion(id, rank, how));
    }

    /// Empties a list of ids into a plan.
    static Payload plan(List<TransferId> ids) {
        if (ids.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter().i32(ids.size());
        ids.forEach(id -> id.write(out));
        ids.clear();
        return out.toPayload(1);
    }

    /// One rank's part.
    final class Rank {
        private final int rank;
        private final List<TransferId> open = new ArrayList<>();
        private final List<Completion> completions = new ArrayList<>();

        Rank(int rank) {
            this.rank = rank;
        }

        void begin(WorkerStep step) {
            for (var id : step.revoked()) {
                open.remove(id);
                completions.add(new Completion(id, rank, new Completion.Revoked()));
            }
            if (!step.plan().isEmpty()) {
                var in = step.plan().reader();
                for (int n = in.count(13); n > 0; n--) {
                    open.add(TransferId.read(in));
                }
            }
        }

        StepReport report(WorkerStep step, Stats stats) {
            for (var id : List.copyOf(open)) {
                if (ready.test(id, rank)) {
                    open.remove(id);
                    completions.add(new Completion(id, rank, result.apply(id, rank)));
                }
            }
            var queue = extra.getOrDefault(rank, new ConcurrentLinkedQueue<>());
            for (var next = queue.poll(); next != null; next = queue.poll()) {
                completions.add(next);
            }
            var report =
                    new StepReport(
                            rank, step.number(), completions, Payload.EMPTY, stats, List.of());
            completions.clear();
            return report;
        }

        void close() {
            open.clear();
        }
    }
}
