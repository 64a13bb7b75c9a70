// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.staging;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;

import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

import picocli.CommandLine.Command;

/// `staging`: [StagingPoolJmh] with 1 to 8 threads.
@Command(
        name = "staging",
        description =
                "Buffers of the staging pool: time and heap bytes per buffer, 1 to 8 threads.")
public final class StagingPoolBenchmark extends Benchmark {
    @Override
    protected void run() throws RunnerException {
        var table = new Table("operation", "bytes", "threads", "ns/op", "heap B/op");
        for (int threads : quick ? new int[] {1, 8} : new int[] {1, 2, 4, 8}) {
            var options =
                    new OptionsBuilder()
                            .include(StagingPoolJmh.class.getName())
                            .threads(threads)
                            .addProfiler("gc")
                            .verbosity(VerboseMode.SILENT);
            if (quick) {
                options.param("bytes", "65536")
                        .warmupIterations(2)
                        .measurementIterations(3)
                        .measurementTime(TimeValue.milliseconds(500));
            }
            for (var result : new Runner(options.build()).run()) {
                var heap = result.getSecondaryResults().get("gc.alloc.rate.norm");
                table.row(
                        result.getPrimaryResult().getLabel(),
                        result.getParams().getParam("bytes"),
                        threads,
                        result.getPrimaryResult().getScore(),
                        heap == null ? "unknown" : heap.getScore());
            }
        }
        table.print();
    }
}
