// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.stream.Collectors;

/// Makes a load fail on one rank: a completion reported by that rank is turned into a failure and
/// the blocks are overwritten. The other ranks do not notice. A load that fails there by itself is
/// left unchanged.
final class HarnessBreaker {
    private final HarnessMemory memory;
    private OptionalInt rank = OptionalInt.empty();
    private OptionalInt group = OptionalInt.empty();

    HarnessBreaker(HarnessMemory memory) {
        this.memory = memory;
    }

    /// The next load that this rank completes has failed.
    ///
    /// @param lastBlockOf the group whose last loaded block is named; empty for all blocks
    void arm(int onRank, OptionalInt lastBlockOf) {
        rank = OptionalInt.of(onRank);
        group = lastBlockOf;
    }

    /// Which of the requests that load and compute in one step do so in vain.
    Set<String> inVain(List<HarnessRequest> sync) {
        return rank.isEmpty()
                ? Set.of()
                : sync.stream().map(HarnessRequest::id).collect(Collectors.toSet());
    }

    List<StepReport> strike(List<StepReport> reports, Collection<HarnessRequest> requests) {
        var struck = new ArrayList<StepReport>();
        for (var report : reports) {
            boolean hit = rank.isPresent() && report.rank() == rank.getAsInt();
            struck.add(hit ? strike(report, requests) : report);
        }
        return struck;
    }

    private StepReport strike(StepReport report, Collection<HarnessRequest> requests) {
        var completions = new ArrayList<Completion>();
        for (var completion : report.completions()) {
            completions.add(
                    rank.isEmpty()
                            ? completion
                            : find(completion, requests)
                                    .map(request -> strike(completion, request))
                                    .orElse(completion));
        }
        return new StepReport(
                report.rank(),
                report.step(),
                completions,
                report.payload(),
                report.stats(),
                report.events());
    }

    private static Optional<HarnessRequest> find(
            Completion completion, Collection<HarnessRequest> requests) {
        var id = completion.id();
        if (id.direction() != TransferId.Direction.LOAD) {
            return Optional.empty();
        }
        return requests.stream()
                .filter(request -> request.id().equals(id.subject()) && request.load.isPresent())
                .findFirst();
    }

    private Completion strike(Completion completion, HarnessRequest request) {
        if (!(completion.result() instanceof Completion.Completed)) {
            // It failed here without us. A composite may load what is missing from another child:
            // to spoil the whole load then would spoil blocks that the second report does not name.
            rank = OptionalInt.empty();
            return completion;
        }
        var load = request.load.orElseThrow();
        memory.spoil(request, completion.rank(), load.fromToken(), load.toToken());
        request.broken = true;
        var blocks =
                group.isPresent()
                        ? List.of(lastBlock(request, load, group.getAsInt()))
                        : List.<Completion.FailedBlocks>of();
        rank = OptionalInt.empty();
        var failure = new Failure(ErrorCode.IO, "the harness lets the load fail");
        return new Completion(
                completion.id(), completion.rank(), new Completion.Failed(failure, blocks));
    }

    private Completion.FailedBlocks lastBlock(
            HarnessRequest request, LoadAssignment load, int inGroup) {
        int position = Math.ceilDiv(load.toToken(), memory.blockTokens(inGroup)) - 1;
        if (request.blocks[inGroup][position] == BlockTable.NO_BLOCK) {
            throw new IllegalStateException("no block at the end of " + load);
        }
        return new Completion.FailedBlocks(inGroup, new int[] {position});
    }
}
