// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.sched.StepSchedule.ScheduledTokens;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.toolkit.hash.BlockHasher;

import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// What a step computed: requests get their tokens, fail, or end.
///
/// Threading: scheduler thread only.
final class StepResults {
    private final BlockHasher hasher;
    private final KvCache cache;
    private final EncoderScheduler encoders;
    private final StepPlanner planner;
    private final Requests requests;
    private final Telemetry telemetry;
    private final Metrics metrics;

    /// Not counted yet: counters are added to once a step, and before anybody can see its outcome.
    private int computedTokens;

    private int generatedTokens;

    private boolean published;

    /// @param hasher of this thread
    StepResults(
            BlockHasher hasher,
            KvCache cache,
            EncoderScheduler encoders,
            StepPlanner planner,
            Requests requests,
            Telemetry telemetry) {
        this.hasher = hasher;
        this.cache = cache;
        this.encoders = encoders;
        this.planner = planner;
        this.requests = requests;
        this.telemetry = telemetry;
        this.metrics = telemetry.metrics();
    }

    /// Acts on what the ranks computed.
    void takeIn(List<RankResult> results, StepSchedule schedule) {
        boolean clean = areClean(results);
        long now = System.nanoTime();
        int computed = 0;
        var first = results.getFirst();
        for (int i = 0; i < schedule.size(); i++) {
            var item = schedule.get(i);
            var request = item.state();
            if (request.load != null && request.status() == Status.RUNNING) {
                request.load.late = true;
                planner.park(request);
                continue;
            }
            if (item.discarded
                    || request.status() != Status.RUNNING
                    || (!clean && skippedOrFailed(results, i, request))) {
                continue;
            }
            computed += item.count();
            if (item.sampled()) {
                telemetry.token(request.clock, now);
            }
            if (item.promptLogits() > 0) {
                request.generation.promptLogprobs(item.start() + 1, first.promptLogprobs(i));
            }
            advance(request, item, first.token(i), first.logprobs(i));
        }
        count();
        if (computed > 0) {
            telemetry.step(computed);
        }
    }

    private void count() {
        metrics.add(Counter.COMPUTED_TOKENS, computedTokens);
        metrics.add(Counter.GENERATED_TOKENS, generatedTokens);
        computedTokens = 0;
        generatedTokens = 0;
    }

    private void end(RequestState request, FinishReason reason) {
        count();
        requests.end(request, reason, null);
    }

    /// Whether tokens were appended since the last call.
    boolean takePublished() {
        boolean any = published;
        published = false;
        return any;
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
                count();
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
        computedTokens += item.count();
        request.promptComputed +=
                Math.max(0, Math.min(computed, request.promptTokenCount()) - item.start());
        request.computed = computed;
        request.runnerKnows = computed;
        cache.publish(request);
        if (request.hasItems) {
            encoders.computed(request.items, computed);
        }
        if (!sampled) {
            return;
        }
        var stop = Objects.requireNonNull(request.stops, "a request that runs has its stops");
        if (stop.isEnd(token)) {
            end(request, FinishReason.STOP);
            return;
        }
        if (logprobs.isPresent()) {
            request.generation.logprobs(logprobs.get());
        }
        request.append(token); // from here on readers see it
        published = true;
        request.hash(hasher);
        generatedTokens++;
        Optional<FinishReason> reason;
        try {
            reason = stop.after(request, token);
        } catch (Throwable e) { // the border to the tokenizer
            count();
            requests.fail(
                    request,
                    new Failure(
                            Failure.of(e).code(),
                            "the tokenizer failed to decode token " + token + ": " + e));
            return;
        }
        if (reason.isPresent()) {
            end(request, reason.get());
        }
    }

    /// Ends the requests of an encode engine whose items are all there now.
    void takeInEncoded() {
        for (var request : planner.encoded()) {
            if (request.ended()) {
                continue;
            }
            if (encoders.hasAll(request.items)) {
                requests.end(request, FinishReason.STOP, null);
            } else {
                planner.encodeAgain(request);
            }
        }
    }
}
