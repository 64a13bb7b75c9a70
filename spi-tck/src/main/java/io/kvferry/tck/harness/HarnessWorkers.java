// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.engine.worker.process.ReportCodec;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.tck.Patience;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.IntConsumer;

/// The worker side of a harness: runs one step on every rank, computes tokens, checks what
/// synchronous loads left.
///
/// Threading: the test's thread stands for every rank's step thread, one rank after the other.
final class HarnessWorkers {
    private final List<WorkerConnector> ranks;
    private final HarnessMemory memory;
    private final boolean layerwiseLoad;
    private final boolean layerwiseSave;

    /// What happens on a rank between its last layer and the end of the step.
    private IntConsumer beforeEnd = _ -> {};

    HarnessWorkers(
            List<WorkerConnector> ranks, HarnessMemory memory, ConnectorCapabilities claimed) {
        this.ranks = ranks;
        this.memory = memory;
        this.layerwiseLoad = claimed.has(Feature.LAYERWISE_LOAD);
        this.layerwiseSave = claimed.has(Feature.LAYERWISE_SAVE);
    }

    void beforeEnd(IntConsumer action) {
        beforeEnd = action;
    }

    /// Runs a step everywhere.
    ///
    /// @param sync requests whose synchronous load belongs to this step
    /// @param inVain requests that compute on a load that failed elsewhere
    /// @param notComputed requests that the model leaves out or fails for
    List<StepReport> run(
            long number,
            Payload plan,
            List<TransferId> revoked,
            List<HarnessViews.Scheduled> scheduled,
            List<HarnessRequest> sync,
            Set<String> inVain,
            Set<String> notComputed) {
        var reports = new ArrayList<StepReport>();
        for (int rank = 0; rank < ranks.size(); rank++) {
            var worker = ranks.get(rank);
            var copy =
                    plan.isEmpty()
                            ? Payload.EMPTY
                            : new Payload(plan.version(), plan.bytes().clone());
            var step =
                    new WorkerStep(
                            number,
                            copy,
                            revoked,
                            !scheduled.isEmpty(),
                            Deadline.in(Patience.STEP_LIMIT));
            worker.beginStep(step);
            inTime(step, "beginStep");
            var wrong = new HashMap<String, String>();
            if (!layerwiseLoad) {
                for (int layer = 0; layer < memory.layers(rank); layer++) {
                    checkLoaded(sync, rank, layer, wrong);
                }
            }
            if (!scheduled.isEmpty()) {
                var computed =
                        scheduled.stream()
                                .filter(entry -> !notComputed.contains(entry.request().id()))
                                .filter(entry -> !inVain.contains(entry.request().id()))
                                .toList();
                forward(worker, rank, step, computed, sync, wrong);
            }
            if (!scheduled.isEmpty()) {
                beforeEnd.accept(rank);
            }
            worker.endStep(step, notComputed);
            inTime(step, "endStep");
            var report = copy(worker.report(step));
            inTime(step, "report");
            checkReport(report, rank, number, sync, wrong);
            reports.add(report);
        }
        return reports;
    }

    private void forward(
            WorkerConnector worker,
            int rank,
            WorkerStep step,
            List<HarnessViews.Scheduled> scheduled,
            List<HarnessRequest> sync,
            Map<String, String> wrong) {
        for (int layer = 0; layer < memory.layers(rank); layer++) {
            int index = memory.regions(rank).get(layer).layerIndex();
            if (layerwiseLoad) {
                worker.awaitLayer(index, step.limit());
                checkLoaded(sync, rank, layer, wrong);
            }
            for (var entry : scheduled) {
                var request = entry.request();
                int from = request.computed;
                if (wrong.containsKey(request.id())) {
                    // Computed on a broken prefix: what is in the blocks must not be saved.
                    continue;
                }
                memory.compute(request, rank, layer, from, from + entry.tokens());
            }
            if (layerwiseSave) {
                worker.saveLayer(index);
            }
        }
    }

    private void checkLoaded(
            List<HarnessRequest> sync, int rank, int layer, Map<String, String> wrong) {
        for (var request : sync) {
            var load = request.load.orElseThrow();
            var difference =
                    memory.difference(request, rank, layer, load.fromToken(), load.toToken());
            if (!difference.isEmpty()) {
                wrong.putIfAbsent(request.id(), difference);
            }
        }
    }

    private static void checkReport(
            StepReport report,
            int rank,
            long number,
            List<HarnessRequest> sync,
            Map<String, String> wrong) {
        if (report.rank() != rank || report.step() != number) {
            throw new AssertionError(
                    "rank "
                            + rank
                            + " reports step "
                            + number
                            + " as rank "
                            + report.rank()
                            + ", step "
                            + report.step());
        }
        for (var completion : report.completions()) {
            if (completion.rank() != rank) {
                throw new AssertionError(
                        "rank "
                                + rank
                                + " reports "
                                + completion.id()
                                + " for rank "
                                + completion.rank());
            }
        }
        for (var request : sync) {
            var id = request.load.orElseThrow().id();
            var ends =
                    report.completions().stream()
                            .filter(c -> c.id().equals(id))
                            .map(Completion::result)
                            .toList();
            boolean viaChild =
                    report.completions().stream().anyMatch(c -> !c.id().child().isEmpty());
            if (ends.isEmpty() && !viaChild) {
                throw new AssertionError(
                        "the synchronous load "
                                + id
                                + " was not reported in its step by rank "
                                + rank);
            }
            if (wrong.containsKey(request.id())
                    && ends.stream().anyMatch(Completion.Completed.class::isInstance)) {
                throw new AssertionError(id + " was completed, but " + wrong.get(request.id()));
            }
        }
    }

    private static void inTime(WorkerStep step, String method) {
        if (step.limit().passed()) {
            throw new AssertionError(
                    method
                            + " overran the limit of step "
                            + step.number()
                            + " ("
                            + Patience.STEP_LIMIT
                            + ")");
        }
    }

    /// Through the wire and back: reports cross processes.
    private static StepReport copy(StepReport report) {
        var out = new WireWriter();
        ReportCodec.write(out, report);
        var in = new WireReader(out.toByteArray());
        var copy = ReportCodec.read(in);
        in.end();
        return copy;
    }
}
