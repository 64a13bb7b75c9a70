// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.replay.Trace;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/// `store`: all parts, or those that `--parts` names.
public final class StoreBenchmark implements Benchmark {
    private static final String ALL = "bandwidth,tier,keys,eviction,replay";

    @Override
    public String name() {
        return "store";
    }

    @Override
    public String description() {
        return "embedded Mooncake store: put and get beside a memory copy, costs per key, replay of"
                + " a trace; the disk tier in turns with fio (--parts "
                + ALL
                + ", --keys COUNT,.., --trace FILE, --dir FOLDER of the disk tier)";
    }

    @Override
    public void run(List<String> args) throws IOException, InterruptedException {
        boolean quick = args.contains("--quick");
        var parts = List.of(Benchmark.option(args, "--parts", ALL).split(","));
        String counts = quick ? "10000,100000" : "10000,100000,1000000";
        int[] sizes =
                Arrays.stream(Benchmark.option(args, "--keys", counts).split(","))
                        .mapToInt(Integer::parseInt)
                        .toArray();
        if (parts.contains("bandwidth")) {
            Bandwidth.run(quick ? 5 : 25);
        }
        if (parts.contains("tier")) {
            TierBandwidth.run(Path.of(Benchmark.option(args, "--dir", ".")), quick);
        }
        if (parts.contains("keys")) {
            KeyCosts.run(sizes, quick);
        }
        if (parts.contains("eviction")) {
            EvictionCosts.run(sizes);
        }
        if (parts.contains("replay")) {
            String file = Benchmark.option(args, "--trace", "");
            StoreReplay.run(
                    file.isEmpty() ? Trace.made(4000) : Trace.read(Path.of(file)),
                    file.isEmpty() ? new long[0] : StoreReplay.timestamps(Path.of(file)));
        }
    }
}
