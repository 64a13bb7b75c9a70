// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.kv.CacheEvent;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferResult;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.function.UnaryOperator;

/// What mutants do to reports and claims, for both kinds of connector.
final class Reports {
    private Reports() {}

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
                .filter(completion -> !(completion.result() instanceof TransferResult.Revoked))
                .toList();
    }

    /// All of these results, where the half said that it failed.
    static List<Completion> withoutFailures(List<Completion> completions) {
        return completions.stream()
                .map(completion ->
                        completion.result() instanceof TransferResult.Failed
                                ? new Completion(
                                        completion.id(),
                                        completion.rank(),
                                        new TransferResult.Completed(0))
                                : completion)
                .toList();
    }

    static ConnectorCapabilities without(ConnectorCapabilities claimed, Feature feature) {
        var less = EnumSet.copyOf(claimed.features());
        less.remove(feature);
        return new ConnectorCapabilities(less, claimed.requiredLayout());
    }
}
