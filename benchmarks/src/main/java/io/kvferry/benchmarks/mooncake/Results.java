// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Table;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/// The results of one transport over all rounds of all starts. The scheduler mostly keeps the
/// threads of a start where it first placed them, so the rounds of one start are correlated.
final class Results {
    private final List<Trips> trips = new ArrayList<>();
    private final Map<Shape, Row> rows = new LinkedHashMap<>();

    /// One round of 4 KiB round trips.
    ///
    /// @param limit median and 99th percentile of the C ping-pong in nanoseconds, empty without it
    private record Trips(double p50, double p99, long[] limit, double heapBytes) {}

    /// The rounds of one row.
    static final class Row {
        final Rounds ours = new Rounds();
        final Rounds limits = new Rounds();
        final Rounds mooncake = new Rounds();
        private final int lanes;
        private final List<long[]> nanos = new ArrayList<>();
        private long allocated;
        private long transfers;

        private Row(int lanes) {
            this.lanes = lanes;
        }

        /// @param bytes that so many transfers allocated
        /// @param each what those took that were timed
        void heap(long bytes, long transfers, long[] each) {
            allocated += bytes;
            this.transfers += transfers;
            nanos.add(each);
        }

        private void print(Table table, Shape shape) {
            long[] sorted = nanos.stream().flatMapToLong(Arrays::stream).sorted().toArray();
            table.row(
                    shape.operation(),
                    shape.threads(),
                    shape.block(),
                    shape.batch(),
                    lanes,
                    ours.median(Run::rate),
                    limits.median(Run::rate),
                    ours.ratios(limits),
                    ours.median(Run::cpuMillisPerGb),
                    limits.median(Run::cpuMillisPerGb),
                    mooncake.median(Run::rate),
                    ours.ratios(mooncake),
                    mooncake.median(Run::cpuMillisPerGb),
                    at(sorted, 0.5) / 1e3,
                    at(sorted, 0.99) / 1e3,
                    allocated / transfers);
        }
    }

    /// @param sorted what each of them took
    /// @param limit as [LimitProgram#ping] has it, empty without a limit
    void trips(long[] sorted, long[] limit, long heapBytes) {
        trips.add(
                new Trips(
                        at(sorted, 0.5),
                        at(sorted, 0.99),
                        limit,
                        (double) heapBytes / sorted.length));
    }

    Row row(Shape shape, int lanes) {
        return rows.computeIfAbsent(shape, any -> new Row(lanes));
    }

    void print(String way) {
        var small =
                new Table(
                        "4 KiB READ: min, median, max",
                        "p50 us",
                        "p99 us",
                        "p50 by C ping-pong's",
                        "p99 by its",
                        "heap B/transfer");
        boolean limited = trips.stream().allMatch(round -> round.limit().length > 0);
        small.row(
                way,
                spread(trips.stream().map(round -> round.p50() / 1e3)),
                spread(trips.stream().map(round -> round.p99() / 1e3)),
                limited ? spread(trips.stream().map(it -> it.p50() / it.limit()[0])) : "-",
                limited ? spread(trips.stream().map(it -> it.p99() / it.limit()[1])) : "-",
                Math.round(trips.stream().mapToDouble(Trips::heapBytes).average().orElse(0)));
        small.print();
        var table =
                new Table(
                        way,
                        "threads",
                        "block",
                        "ranges",
                        "lanes",
                        "GB/s",
                        "limit GB/s",
                        "of limit: min, median, max",
                        "CPU ms/GB",
                        "limit's",
                        "Mooncake GB/s",
                        "times Mooncake: min, median, max",
                        "its CPU ms/GB",
                        "p50 us",
                        "p99 us",
                        "heap B/transfer");
        rows.forEach((shape, row) -> row.print(table, shape));
        table.print();
    }

    private static String spread(Stream<Double> values) {
        return Rounds.spread(values.mapToDouble(Double::doubleValue).toArray());
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1L, (long) (sorted.length * quantile))];
    }
}
