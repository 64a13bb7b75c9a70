// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Table;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// What others reach on this machine's loopback, measured before the sweep, as far as they are
/// installed. GB/s; 0 for what is not.
final class Limits {
    private double iperf;
    private final Map<Integer, Double> ucx = new HashMap<>();
    private final Map<Shape, Double> mooncake = new HashMap<>();

    private Limits() {}

    /// For a run that looks at this engine only.
    static Limits none() {
        return new Limits();
    }

    static Limits measure(List<Shape> shapes, long memory, boolean quick) throws Exception {
        var limits = new Limits();
        var table = new Table("limit", "Block Size (B)", "B/W (GB/Sec)");
        Optional<Path> iperf = Iperf.find();
        for (int streams = 1; iperf.isPresent() && streams <= 2; streams++) {
            double rate = Iperf.rate(iperf.get(), streams, quick ? 2 : 5);
            limits.iperf = Math.max(limits.iperf, rate);
            table.row("iperf3, streams: " + streams, "", rate);
        }
        Optional<Path> ucx = Ucx.find();
        int[] blocks = shapes.stream().mapToInt(Shape::block).distinct().toArray();
        for (int block : ucx.isPresent() ? blocks : new int[0]) {
            double rate = Ucx.rate(ucx.get(), block, quick ? 1L << 29 : 1L << 31);
            limits.ucx.put(block, rate);
            table.row("ucx_perftest tag_bw, UCX_TLS=tcp", block, rate);
        }
        table.print();
        limits.mooncake(shapes, memory, quick ? 1 : 3);
        return limits;
    }

    private void mooncake(List<Shape> shapes, long memory, int seconds) throws Exception {
        var table =
                new Table(
                        "transfer_engine_bench",
                        "threads",
                        "Block Size (B)",
                        "Batch Size",
                        "no pool, B/W (GB/Sec)",
                        "pool, B/W (GB/Sec)");
        var plain = MooncakeBench.start(false, memory);
        if (plain.isEmpty()) {
            return;
        }
        try (MooncakeBench without = plain.get();
                MooncakeBench with = MooncakeBench.start(true, memory).orElseThrow()) {
            for (Shape shape : shapes) {
                double slow = without.rate(shape, seconds);
                double fast = with.rate(shape, seconds);
                mooncake.put(shape, Math.max(slow, fast));
                table.row(
                        shape.operation(),
                        shape.threads(),
                        shape.block(),
                        shape.batch(),
                        slow,
                        fast);
            }
        }
        table.print();
    }

    /// The best of the streams and of UCX at this block size.
    double wire(int block) {
        return Math.max(iperf, ucx.getOrDefault(block, 0.0));
    }

    /// The better of Mooncake's two ways at this row, 0 when it was not measured.
    double mooncake(Shape shape) {
        return mooncake.getOrDefault(shape, 0.0);
    }
}
