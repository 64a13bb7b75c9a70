// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.function.IntFunction;

/// Cuts a batch into one for each owner, and makes their calls at the same time.
///
/// Threading: any thread.
final class OwnerBatches {
    private final FanOut fanOut;

    /// A call that moves bytes.
    @FunctionalInterface
    interface Move {
        /// @param results per key of the batch a count, or a code
        void run(RemoteStore store, StoreBatch batch, long[] results);
    }

    OwnerBatches(FanOut fanOut) {
        this.fanOut = fanOut;
    }

    /// @param at owner of a key; null for one that is left out
    /// @param results per key; those of keys that are left out stay
    void move(StoreBatch batch, IntFunction<@Nullable Member> at, Move move, long[] results) {
        var byOwner = new LinkedHashMap<Member, List<Integer>>();
        for (int i = 0; i < batch.size(); i++) {
            Member member = at.apply(i);
            if (member != null) {
                byOwner.computeIfAbsent(member, _ -> new ArrayList<>()).add(i);
            }
        }
        var calls = new ArrayList<Runnable>();
        byOwner.forEach(
                (member, indices) -> calls.add(() -> move(batch, member, indices, move, results)));
        fanOut.run(calls);
    }

    private static void move(
            StoreBatch batch, Member member, List<Integer> indices, Move move, long[] results) {
        boolean all = indices.size() == batch.size();
        var part = all ? batch : new StoreBatch();
        if (!all) {
            indices.forEach(index -> part.add(batch, index));
        }
        var answers = new long[indices.size()];
        long code =
                member.call(store -> {
                    move.run(store, part, answers);
                    return 0;
                });
        for (int i = 0; i < answers.length; i++) {
            long answer = code == 0 ? answers[i] : code;
            results[indices.get(i)] = answer;
            member.answered(answer);
        }
    }
}
