// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/// Defects that mutants of both kinds of connector have.
final class Defects {
    private static final CountDownLatch NEVER = new CountDownLatch(1);

    private Defects() {}

    /// An object of the SPI with one method of another kind.
    static <T> T instead(Class<T> type, T target, String method, Interceptor.Around other) {
        return Interceptor.wrap(
                type,
                target,
                (called, arguments, proceed) ->
                        called.getName().equals(method)
                                ? other.call(called, arguments, proceed)
                                : proceed.run());
    }

    /// A scheduler half that hands out its last plan again when it has none.
    static <S> S repeatingPlans(Class<S> type, S half) {
        var last = new Payload[] {Payload.EMPTY};
        return instead(
                type,
                half,
                "buildPlan",
                (_, _, proceed) -> {
                    if (proceed.run() instanceof Payload plan && !plan.isEmpty()) {
                        last[0] = plan;
                    }
                    return last[0];
                });
    }

    static void leakAThread() {
        Thread.ofPlatform()
                .daemon()
                .name("mutant-leak")
                .start(() -> {
                    try {
                        NEVER.await();
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    }
                });
    }

    /// Keeps writing until the memory is gone, for ten seconds at most, in two threads of its own,
    /// because a busy machine may stall one. Returns when both have started.
    static void writeOn(Runnable write) throws InterruptedException {
        var begun = new CountDownLatch(2);
        for (int i = 0; i < 2; i++) {
            Thread.ofPlatform()
                    .daemon()
                    .name("mutant-writes")
                    .start(() -> {
                        long end = System.nanoTime() + 10_000_000_000L;
                        try {
                            write.run();
                            begun.countDown();
                            while (System.nanoTime() < end) {
                                write.run();
                            }
                        } catch (IllegalStateException e) {
                            // the memory is gone
                        }
                    });
        }
        begun.await(10, TimeUnit.SECONDS);
    }

    /// A worker half whose completions are changed.
    static <W> W completing(Class<W> type, W half, UnaryOperator<List<Completion>> change) {
        return changed(
                type,
                half,
                report ->
                        new StepReport(
                                report.rank(),
                                report.step(),
                                change.apply(report.completions()),
                                report.payload(),
                                report.stats(),
                                report.events()));
    }

    /// A worker half whose cache events are changed.
    static <W> W telling(Class<W> type, W half, UnaryOperator<List<CacheEvent>> change) {
        return changed(
                type,
                half,
                report ->
                        new StepReport(
                                report.rank(),
                                report.step(),
                                report.completions(),
                                report.payload(),
                                report.stats(),
                                change.apply(report.events())));
    }

    private static <W> W changed(Class<W> type, W half, UnaryOperator<StepReport> change) {
        return Interceptor.wrap(
                type,
                half,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof StepReport report ? change.apply(report) : result;
                });
    }

    static <T> List<T> twice(List<T> all) {
        var twice = new ArrayList<>(all);
        twice.addAll(all);
        return twice;
    }

    static List<Completion> withoutRevocations(List<Completion> completions) {
        return completions.stream()
                .filter(completion -> !(completion.result() instanceof Completion.Revoked))
                .toList();
    }

    /// All of these results, where the half said that it failed.
    static List<Completion> withoutFailures(List<Completion> completions) {
        return completions.stream()
                .map(completion ->
                        completion.result() instanceof Completion.Failed
                                ? new Completion(
                                        completion.id(),
                                        completion.rank(),
                                        new Completion.Completed(0))
                                : completion)
                .toList();
    }

    static ConnectorCapabilities with(ConnectorCapabilities claimed, Feature feature) {
        var more = EnumSet.copyOf(claimed.features());
        more.add(feature);
        return new ConnectorCapabilities(more, claimed.requiredLayout());
    }

    static ConnectorCapabilities without(ConnectorCapabilities claimed, Feature feature) {
        var less = EnumSet.copyOf(claimed.features());
        less.remove(feature);
        return new ConnectorCapabilities(less, claimed.requiredLayout());
    }
}
