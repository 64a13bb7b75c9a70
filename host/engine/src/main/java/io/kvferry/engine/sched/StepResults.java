// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.BlockHasher;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// What comes back from the workers after a step: reports of the connectors, tokens, failures.
///
/// Threading: scheduler thread only.
final class StepResults {
    private final BlockHasher hasher;
    private final GuardedKvScheduler kv;
    private final GuardedEcScheduler ec;
    private final ConnectorRecovery<?> kvRecovery;
    private final ConnectorRecovery<?> ecRecovery;
    private final Completions kvCompletions;
    private final Completions ecCompletions;
    private final KvTransfers kvTransfers;
    private final EncoderScheduler encoders;
    private final Scheduler scheduler;
    private final Requests requests;
    private final Telemetry telemetry;
    private final Metrics metrics;
    private final List<Completion> merged = new ArrayList<>();
    private final List<Completion> ecMerged = new ArrayList<>();
    private final List<StepReport> reports = new ArrayList<>();

    StepResults(
            BlockHasher hasher,
            GuardedKvScheduler kv,
            GuardedEcScheduler ec,
            ConnectorRecovery<?> kvRecovery,
            ConnectorRecovery<?> ecRecovery,
            Completions kvCompletions,
            Completions ecCompletions,
            KvTransfers kvTransfers,
            EncoderScheduler encoders,
            Scheduler scheduler,
            Requests requests,
            Telemetry telemetry) {
        this.hasher = hasher;
        this.kv = kv;
        this.ec = ec;
        this.kvRecovery = kvRecovery;
        this.ecRecovery = ecRecovery;
        this.kvCompletions = kvCompletions;
        this.ecCompletions = ecCompletions;
        this.kvTransfers = kvTransfers;
        this.encoders = encoders;
        this.scheduler = scheduler;
        this.requests = requests;
        this.telemetry = telemetry;
        this.metrics = telemetry.metrics;
    }

    /// The workers are gone, and with them whatever they had reported.
    void clear() {
        merged.clear();
        ecMerged.clear();
        reports.clear();
    }

    /// Acts on the results of all ranks.
    void takeIn(long step, List<RankResult> results, StepSchedule schedule) {
        if (kvRecovery.executed()) {
            kvClosed(results.size());
        }
        if (ecRecovery.executed()) {
            ecClosed(results.size());
        }
        for (int rank = 0; rank < results.size(); rank++) {
            int failed = rank;
            for (var failure : results.get(rank).encodeFailures()) {
                encoders.encodeFailed(failure.hash(), failure.failure());
            }
            var result = results.get(rank);
            result.kvDefect()
                    .ifPresent(
                            defect -> kvRecovery.off(kv.instance() + " on rank " + failed, defect));
            result.ecDefect()
                    .ifPresent(
                            defect -> ecRecovery.off(ec.instance() + " on rank " + failed, defect));
            result.kvOpened().ifPresent(opened -> kvRecovery.opened(failed, opened));
            result.ecOpened().ifPresent(opened -> ecRecovery.opened(failed, opened));
        }
        takeInKv(step, results);
        takeInEc(step, results);
        encoders.endStep();
        takeInTokens(results, schedule);
        requests.failBroken();
        for (var request : scheduler.encoded()) {
            if (request.ended()) {
                continue;
            }
            if (encoders.hasAll(request)) {
                requests.end(request, FinishReason.STOP, null);
            } else {
                scheduler.encodeAgain(request);
            }
        }
        kv.observe();
        ec.observe();
        telemetry.flush();
    }

    /// Nothing that the connector had open goes on: its halves are closed.
    private void kvClosed(int ranks) {
        kvTransfers.leases().disable();
        for (int rank = 0; rank < ranks; rank++) {
            kvTransfers.failRank(rank, kvRecovery.reason(), merged);
        }
    }

    private void ecClosed(int ranks) {
        for (int rank = 0; rank < ranks; rank++) {
            encoders.transfers().failRank(rank, ecRecovery.reason(), ecMerged);
        }
    }

    private void takeInKv(long step, List<RankResult> results) {
        reports.clear();
        for (int rank = 0; rank < results.size(); rank++) {
            reports.add(ofRank(results.get(rank).kvReport(), rank, kv.instance()));
        }
        for (var report : reports) {
            kvCompletions.add(report, merged);
            metrics.addKv(report.rank(), report.stats());
            kv.forward(report.events());
        }
        if (kv.present()) {
            var report = kv.settle(new MergedReport(step, merged, reports));
            merged.clear();
            for (var completion : report.completions()) {
                if (!kvTransfers.complete(completion)) {
                    metrics.count(Counter.COMPLETIONS_UNMATCHED);
                }
            }
        }
        merged.clear();
    }

    private void takeInEc(long step, List<RankResult> results) {
        if (!ec.present()) {
            return;
        }
        reports.clear();
        for (int rank = 0; rank < results.size(); rank++) {
            reports.add(ofRank(results.get(rank).ecReport(), rank, ec.instance()));
        }
        for (var report : reports) {
            ecCompletions.add(report, ecMerged);
            metrics.addEc(report.rank(), report.stats());
            ec.forward(report.events());
        }
        var report = ec.settle(new MergedReport(step, ecMerged, reports));
        ecMerged.clear();
        report.completions().forEach(encoders.transfers()::complete);
    }

    /// The rank is the one that answered, whatever the report says.
    private StepReport ofRank(StepReport report, int rank, String by) {
        if (report.rank() == rank) {
            return report;
        }
        telemetry.defect("", by, "rank " + rank + " reported as rank " + report.rank());
        return new StepReport(
                rank,
                report.step(),
                report.completions(),
                report.payload(),
                report.stats(),
                report.events());
    }

    private void takeInTokens(List<RankResult> results, StepSchedule schedule) {
        boolean clean = areClean(results);
        long now = System.nanoTime();
        int computed = 0;
        for (int i = 0; i < schedule.size(); i++) {
            var item = schedule.get(i);
            var request = item.state();
            if (request.load != null && request.status() == Status.RUNNING) {
                request.load.late = true;
                scheduler.park(request);
                continue;
            }
            if (item.discarded
                    || request.status() != Status.RUNNING
                    || (!clean && skippedOrFailed(results, i, request))) {
                continue;
            }
            var first = results.getFirst();
            computed += item.count();
            if (item.sampled()) {
                telemetry.token(request, now);
            }
            advance(request, item, first.token(i), first.logprobs(i));
        }
        if (computed > 0) {
            telemetry.step(computed);
        }
    }

    private static boolean areClean(List<RankResult> results) {
        for (var result : results) {
            if (!result.isClean()) {
                return false;
            }
        }
        return true;
    }

    private boolean skippedOrFailed(List<RankResult> results, int item, RequestState request) {
        for (var result : results) {
            if (result.skipped(item)) {
                return true;
            }
        }
        for (var result : results) {
            var failure = result.failure(item);
            if (failure.isPresent()) {
                requests.fail(request, failure.get());
                return true;
            }
        }
        return false;
    }

    private void advance(
            RequestState request,
            ScheduledTokens item,
            int token,
            Optional<TokenLogprobs> logprobs) {
        boolean sampled = item.sampled();
        int computed = item.start() + item.count();
        metrics.add(Counter.COMPUTED_TOKENS, item.count());
        request.promptComputed +=
                Math.max(0, Math.min(computed, request.promptTokenCount()) - item.start());
        request.computed = computed;
        request.runnerKnows = computed;
        scheduler.publish(request);
        encoders.computed(request, computed);
        if (!sampled) {
            return;
        }
        var stop = Objects.requireNonNull(request.stops, "a request that runs has its stops");
        if (stop.isEnd(token)) {
            requests.end(request, FinishReason.STOP, null);
            return;
        }
        request.append(token);
        request.hash(hasher);
        metrics.count(Counter.GENERATED_TOKENS);
        request.generation.emit(request.sequence(), logprobs);
        Optional<FinishReason> reason;
        try {
            reason = stop.after(request, token);
        } catch (Throwable e) { // the border to the tokenizer
            requests.fail(
                    request,
                    new Failure(
                            Failure.of(e).code(),
                            "the tokenizer failed to decode token " + token + ": " + e));
            return;
        }
        if (reason.isPresent()) {
            requests.end(request, reason.get(), null);
        }
    }
}
