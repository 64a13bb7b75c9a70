// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.replay.Trace;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/// `store`: all parts, or those that `--parts` names.
public final class StoreBenchmark implements Benchmark {
    private static final String ALL = "bandwidth,owner,tier,keys,owner-keys,eviction,replay";

    @Override
    public String name() {
        return "store";
    }

    @Override
    public String description() {
        return "Mooncake store, embedded and in an owner process: put and get in turns with a copy,"
                + " the loopback, real Mooncake and Redis; costs per key; eviction; replay of a"
                + " trace; the disk tier in turns with fio (--parts "
                + ALL
                + ", --kib SIZE,.. of objects, --keys COUNT,.., --trace FILE, --dir FOLDER of the disk tier)";
    }

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        var parts = List.of(Benchmark.option(args, "--parts", ALL).split(","));
        int[] sizes = ints(args, "--keys", quick ? "10000,100000" : "10000,100000,1000000");
        if (parts.contains("bandwidth")) {
            Bandwidth.run(quick ? 5 : 25);
        }
        if (parts.contains("owner")) {
            OwnerBandwidth.run(quick, ints(args, "--kib", "256,4096"));
        }
        if (parts.contains("tier")) {
            TierBandwidth.run(Path.of(Benchmark.option(args, "--dir", ".")), quick);
        }
        if (parts.contains("keys")) {
            KeyCosts.run(sizes, quick);
        }
        if (parts.contains("owner-keys")) {
            OwnerKeys.run(sizes, quick);
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

    private static int[] ints(List<String> args, String option, String byDefault) {
        return Arrays.stream(Benchmark.option(args, option, byDefault).split(","))
                .mapToInt(Integer::parseInt)
                .toArray();
    }
}
