// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.staging;

import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

import java.util.concurrent.TimeUnit;

/// One buffer taken and given back, by threads that share the pool.
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class StagingPoolJmh {
    /// Bytes of a buffer.
    @Param({"4096", "65536", "1048576"})
    public long bytes;

    private BuddyStagingPool pool = new BuddyStagingPool(1);

    @Setup
    public void open() {
        pool = new BuddyStagingPool(256L << 20);
        pool.range();
    }

    @Benchmark
    public void allocateAndFree() {
        pool.free(pool.allocate("benchmark", bytes));
    }

    @Benchmark
    public void allocatePinAndFree() {
        long buffer = pool.allocate("benchmark", bytes);
        pool.pin(buffer);
        pool.free(buffer);
        pool.unpin(buffer);
    }

    @TearDown
    public void close() {
        pool.close();
    }
}
