// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;

import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;

/// Whether every byte of the cache is what it must be.
final class HarnessChecks {
    private final HarnessShape shape;
    private final HarnessMemory memory;
    private final HarnessPool pool;

    HarnessChecks(HarnessShape shape, HarnessMemory memory, HarnessPool pool) {
        this.shape = shape;
        this.memory = memory;
        this.pool = pool;
    }

    /// Checks every byte that must not have changed.
    ///
    /// @param loading whether a load of the request has not ended
    void mustBeRight(
            Collection<HarnessRequest> requests, Predicate<HarnessRequest> loading, String when) {
        mustBeEmpty(memory.stray(pool.freeFlags()), when);
        for (var request : requests) {
            if (request.blocks.length == 0 || request.unchecked) {
                continue;
            }
            int sure =
                    request.load
                            .filter(_ -> loading.test(request))
                            .map(LoadAssignment::fromToken)
                            .orElse(request.computed);
            mustBeEmpty(memory.difference(request, 0, sure), when);
            if (request.state == HarnessRequest.State.LOADING) {
                int end =
                        Math.ceilDiv(request.load.orElseThrow().toToken(), shape.blockTokens())
                                * shape.blockTokens();
                int tokens = request.blocks[0].length * shape.blockTokens();
                mustBeEmpty(memory.unpoisoned(request, Math.min(end, tokens), tokens), when);
            }
        }
    }

    /// Checks that a load brought these tokens.
    void mustBeLoaded(HarnessRequest request, int from, int to, String when) {
        mustBeEmpty(memory.difference(request, from, to), when);
    }

    /// Checks every block of a failed load that it does not name. One that names nothing has failed
    /// whole.
    void mustBeLoadedBut(
            HarnessRequest request, LoadAssignment load, List<Completion.FailedBlocks> failed) {
        if (failed.stream().allMatch(blocks -> blocks.positions().length == 0)) {
            return;
        }
        for (int group = 0; group < shape.groups(); group++) {
            int named = group;
            var missing =
                    failed.stream()
                            .filter(blocks -> blocks.group() == named)
                            .flatMapToInt(blocks -> Arrays.stream(blocks.positions()))
                            .boxed()
                            .toList();
            int tokens = shape.blockTokens(group);
            int end = Math.ceilDiv(load.toToken(), tokens);
            for (int position = load.fromToken() / tokens; position < end; position++) {
                if (!missing.contains(position)) {
                    int from = Math.max(load.fromToken(), position * tokens);
                    int to = Math.min(load.toToken(), (position + 1) * tokens);
                    mustBeEmpty(
                            memory.differenceIn(group, request, from, to),
                            load.id()
                                    + " failed, and does not name block "
                                    + position
                                    + " of group "
                                    + group);
                }
            }
        }
    }

    /// Checks that no byte of the request's blocks was written.
    void mustBeUntouched(HarnessRequest request) {
        int tokens = request.blocks[0].length * shape.blockTokens();
        mustBeEmpty(memory.unpoisoned(request, 0, tokens), "nothing was assigned");
    }

    /// Overwrites the whole cache, as an engine that goes on with other work does.
    void scribble() {
        for (int block = 0; block < shape.blocks(); block++) {
            memory.poison(block);
        }
    }

    /// What of the cache no longer holds what [#scribble] wrote; empty when all does.
    String changedSinceScribble() {
        var all = new boolean[shape.blocks()];
        Arrays.fill(all, true);
        return memory.stray(all);
    }

    private static void mustBeEmpty(String difference, String when) {
        if (!difference.isEmpty()) {
            throw new AssertionError(when + ": " + difference);
        }
    }
}
