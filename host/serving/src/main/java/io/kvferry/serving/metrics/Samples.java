// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.spi.observe.Distribution;
import io.prometheus.metrics.model.snapshots.ClassicHistogramBuckets;
import io.prometheus.metrics.model.snapshots.CounterSnapshot;
import io.prometheus.metrics.model.snapshots.CounterSnapshot.CounterDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot.GaugeDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.HistogramSnapshot;
import io.prometheus.metrics.model.snapshots.HistogramSnapshot.HistogramDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.Labels;
import io.prometheus.metrics.model.snapshots.MetricSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import io.prometheus.metrics.model.snapshots.PrometheusNaming;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/// Samples of one scrape, of metrics that are counted elsewhere. Those of one metric may be added
/// in any order; two with the same labels add up. Names that plugins chose are made valid, and a
/// name that is a counter here and a gauge there becomes two metrics, so that no plugin can spoil
/// the page.
///
/// Threading: one thread.
public final class Samples {
    /// 2^42: an hour in nanoseconds, 4 TiB.
    private static final int MAX_BOUND = 42;

    private final Map<String, Family> families = new LinkedHashMap<>();

    private enum Kind {
        COUNTER,
        GAUGE,
        HISTOGRAM
    }

    private record Family(
            Kind kind,
            String help,
            Map<Labels, Double> values,
            Map<Labels, HistogramDataPointSnapshot> histograms) {}

    /// A count that only grows; its name without `_total`. `labels` are name, value, name, value,
    /// ...
    public Samples counter(String name, String help, double value, String... labels) {
        family(name, Kind.COUNTER, help).values.merge(Labels.of(labels), value, Double::sum);
        return this;
    }

    /// A value that goes up and down.
    public Samples gauge(String name, String help, double value, String... labels) {
        family(name, Kind.GAUGE, help).values.merge(Labels.of(labels), value, Double::sum);
        return this;
    }

    /// A distribution of whole numbers whose values times `scale` are in the unit of the name. Its
    /// bounds are one below the powers of two.
    public Samples histogram(
            String name, String help, Distribution d, double scale, String... labels) {
        var buckets = ClassicHistogramBuckets.builder();
        long count = 0;
        for (int b = 0; b < Distribution.BUCKETS; b++) {
            count += d.bucket(b);
            if (b == Distribution.BUCKETS - 1) {
                buckets.bucket(Double.POSITIVE_INFINITY, count);
            } else if (b <= MAX_BOUND) {
                buckets.bucket(((1L << b) - 1) * scale, count);
                count = 0;
            }
        }
        var point =
                HistogramDataPointSnapshot.builder()
                        .classicHistogramBuckets(buckets.build())
                        .sum(d.sum() * scale)
                        .labels(Labels.of(labels))
                        .build();
        family(name, Kind.HISTOGRAM, help).histograms.putIfAbsent(Labels.of(labels), point);
        return this;
    }

    private Family family(String name, Kind kind, String help) {
        var valid = PrometheusNaming.sanitizeMetricName(name.replace('.', '_').replace('-', '_'));
        var found =
                families.computeIfAbsent(
                        valid,
                        _ -> new Family(kind, help, new LinkedHashMap<>(), new LinkedHashMap<>()));
        return found.kind == kind
                ? found
                : family(valid + "_" + kind.name().toLowerCase(Locale.ROOT), kind, help);
    }

    MetricSnapshots snapshots() {
        return families.entrySet().stream()
                .map(entry -> snapshot(entry.getKey(), entry.getValue()))
                .collect(Collectors.collectingAndThen(Collectors.toList(), MetricSnapshots::new));
    }

    private static MetricSnapshot snapshot(String name, Family family) {
        return switch (family.kind) {
            case COUNTER -> {
                var counter = CounterSnapshot.builder().name(name).help(family.help);
                family.values.forEach((labels, value) ->
                        counter.dataPoint(
                                CounterDataPointSnapshot.builder()
                                        .value(value)
                                        .labels(labels)
                                        .build()));
                yield counter.build();
            }
            case GAUGE -> {
                var gauge = GaugeSnapshot.builder().name(name).help(family.help);
                family.values.forEach((labels, value) ->
                        gauge.dataPoint(
                                GaugeDataPointSnapshot.builder()
                                        .value(value)
                                        .labels(labels)
                                        .build()));
                yield gauge.build();
            }
            case HISTOGRAM -> {
                var histogram = HistogramSnapshot.builder().name(name).help(family.help);
                family.histograms.values().forEach(histogram::dataPoint);
                yield histogram.build();
            }
        };
    }
}
