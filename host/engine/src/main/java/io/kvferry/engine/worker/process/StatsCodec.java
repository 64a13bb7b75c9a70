// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Map;
import java.util.TreeMap;

/// The statistics in a step report, as [ReportCodec] writes them.
final class StatsCodec {
    private StatsCodec() {}

    static void write(WireWriter out, Stats stats) {
        writeFigures(out, stats.counters());
        writeFigures(out, stats.gauges());
        out.i32(stats.distributions().size());
        stats.distributions()
                .forEach((name, distribution) -> {
                    var buckets = new long[Distribution.BUCKETS];
                    for (int b = 0; b < buckets.length; b++) {
                        buckets[b] = distribution.bucket(b);
                    }
                    out.string(name).i64(distribution.sum()).longs(buckets);
                });
    }

    /// @throws KvFerryException PROTOCOL for bytes that are none
    static Stats read(WireReader in) {
        var counters = readFigures(in);
        var gauges = readFigures(in);
        var distributions = new TreeMap<String, Distribution>();
        for (int n = in.count(16); n > 0; n--) {
            var name = in.string();
            long sum = in.i64();
            var buckets = in.longs();
            if (buckets.length != Distribution.BUCKETS) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        "a distribution of "
                                + buckets.length
                                + " buckets, not "
                                + Distribution.BUCKETS);
            }
            distributions.put(name, new Distribution(sum, buckets));
        }
        return counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty()
                ? Stats.EMPTY
                : new Stats(counters, gauges, distributions);
    }

    private static void writeFigures(WireWriter out, Map<String, Long> figures) {
        out.i32(figures.size());
        figures.forEach((name, value) -> out.string(name).i64(value));
    }

    private static Map<String, Long> readFigures(WireReader in) {
        var figures = new TreeMap<String, Long>();
        for (int n = in.count(12); n > 0; n--) {
            figures.put(in.string(), in.i64());
        }
        return figures;
    }
}
