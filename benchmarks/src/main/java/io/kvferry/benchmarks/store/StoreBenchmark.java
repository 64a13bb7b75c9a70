// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.replay.Trace;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.nio.file.Path;
import java.util.List;

/// `store`: all parts, or those that `--parts` names.
@Command(
        name = "store",
        description =
                "Mooncake store, embedded and in an owner process: put and get in turns with a copy,"
                        + " the loopback, real Mooncake and Redis; costs per key; eviction; replay of a"
                        + " trace; the disk tier in turns with fio.")
public final class StoreBenchmark extends Benchmark {
    private static final String ALL = "bandwidth,owner,tier,keys,owner-keys,eviction,replay";

    @Option(names = "--parts", split = ",", description = "Of " + ALL + ".")
    private List<String> parts = List.of(ALL.split(","));

    @Option(names = "--kib", split = ",", description = "Sizes of the objects of an owner.")
    private int[] kib = {256, 4096};

    @Option(names = "--keys", split = ",", description = "How many keys there are.")
    private int @Nullable [] keys;

    @Option(names = "--trace", paramLabel = "FILE", description = "In Mooncake's format.")
    private @Nullable Path trace;

    @Option(names = "--dir", description = "Where the disk tier makes its folder.")
    private Path dir = Path.of(".");

    @Override
    protected void run() throws Exception {
        refuseUnknown("--parts", parts, List.of(ALL.split(",")));
        int[] sizes =
                keys != null
                        ? keys
                        : quick
                                ? new int[] {10_000, 100_000}
                                : new int[] {10_000, 100_000, 1_000_000};
        if (parts.contains("bandwidth")) {
            Bandwidth.run(quick ? 5 : 25);
        }
        if (parts.contains("owner")) {
            OwnerBandwidth.run(quick, kib);
        }
        if (parts.contains("tier")) {
            TierBandwidth.run(dir, quick);
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
            StoreReplay.run(
                    trace == null ? Trace.made(4000) : Trace.read(trace),
                    trace == null ? new long[0] : StoreReplay.timestamps(trace));
        }
    }
}
