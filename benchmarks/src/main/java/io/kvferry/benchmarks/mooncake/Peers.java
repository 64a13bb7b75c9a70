// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Table;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// What others reach on this machine's loopback, as far as they are installed: iperf3 and UCX once,
/// before the rows; Mooncake in turns with each row.
///
/// Threading: one thread.
final class Peers implements AutoCloseable {
    private final Optional<LimitProgram> limit;
    private final Optional<MooncakeBench> plain;
    private final Optional<MooncakeBench> pooled;
    private final Map<Shape, MooncakeBench> better = new HashMap<>();

    private Peers(
            Optional<LimitProgram> limit,
            Optional<MooncakeBench> plain,
            Optional<MooncakeBench> pooled) {
        this.limit = limit;
        this.plain = plain;
        this.pooled = pooled;
    }

    /// @param limit with it the processor time of Mooncake's initiators is measured
    static Peers start(Optional<LimitProgram> limit, long memory) throws Exception {
        var plain = MooncakeBench.start(false, memory);
        return new Peers(
                limit,
                plain,
                plain.isPresent() ? MooncakeBench.start(true, memory) : Optional.empty());
    }

    /// For a run that looks at this engine and its limit only.
    static Peers none() {
        return new Peers(Optional.empty(), Optional.empty(), Optional.empty());
    }

    /// Streams of bytes without messages, and UCX over TCP.
    static void printStreams(List<Shape> shapes, boolean quick) throws Exception {
        var table = new Table("over loopback, GB/s", "block", "rate");
        Optional<Path> iperf = Iperf.find();
        for (int streams = 1; iperf.isPresent() && streams <= 2; streams++) {
            table.row(
                    "iperf3, streams: " + streams,
                    "",
                    Iperf.rate(iperf.get(), streams, quick ? 2 : 5));
        }
        Optional<Path> ucx = Ucx.find();
        int[] blocks = shapes.stream().mapToInt(Shape::block).distinct().toArray();
        for (int block : ucx.isPresent() ? blocks : new int[0]) {
            table.row(
                    "ucx_perftest tag_bw, UCX_TLS=tcp",
                    block,
                    Ucx.rate(ucx.get(), block, quick ? 1L << 29 : 1L << 31));
        }
        if (iperf.isPresent() || ucx.isPresent()) {
            table.print();
        }
    }

    /// The targets serve there from now on. Initiators are started by this process and inherit its
    /// place.
    void place(Placement placement) throws IOException, InterruptedException {
        if (plain.isPresent() && pooled.isPresent()) {
            plain.get().place(placement);
            pooled.get().place(placement);
        }
    }

    /// One round of Mooncake's: with or without its connection pool, whichever was faster in the
    /// first round of the row. Empty where it is not installed, or reports nothing.
    Optional<Run> mooncake(Shape shape, int seconds) throws Exception {
        if (plain.isEmpty() || pooled.isEmpty()) {
            return Optional.empty();
        }
        var known = better.get(shape);
        if (known != null) {
            return known.run(shape, seconds, limit);
        }
        var without = plain.get().run(shape, seconds, limit);
        var with = pooled.get().run(shape, seconds, limit);
        boolean pool =
                with.isPresent() && (without.isEmpty() || with.get().rate() > without.get().rate());
        better.put(shape, pool ? pooled.get() : plain.get());
        return pool ? with : without;
    }

    @Override
    public void close() {
        plain.ifPresent(MooncakeBench::close);
        pooled.ifPresent(MooncakeBench::close);
    }
}
