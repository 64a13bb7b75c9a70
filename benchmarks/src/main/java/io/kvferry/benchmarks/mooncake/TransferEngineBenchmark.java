// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/// The transfer engine between two JVMs of one host, in turns with a C program that moves the same
/// ranges and with Mooncake's own benchmark.
///
/// Options: `--quick`, `--threads=1,2`, `--blocks=4096,...`, `--batches=1,...`,
/// `--ways=tcp,cma,...`, `--rounds=5`, `--no-peers`, `--memory=512` (MiB on each side; rows that
/// need more are left out), `--settings=lanes-per-transfer=2,...` (of the engines).
public final class TransferEngineBenchmark implements Benchmark {
    private static final int MEMORY_MIB = 512;
    private static final Duration ROUND = Duration.ofSeconds(1);
    private static final Duration QUICK_ROUND = Duration.ofMillis(400);

    @Override
    public String name() {
        return "mooncake-te";
    }

    @Override
    public String description() {
        return "Mooncake transfer engine, READ and WRITE, in turns with a C program and Mooncake; beside iperf3 and UCX";
    }

    /// One way to reach the peer.
    private record Way(String name, String text, String... settings) {
        Map<String, String> map(String[] more) {
            Map<String, String> map = new HashMap<>();
            for (String setting : all(more)) {
                map.put(
                        setting.substring(0, setting.indexOf('=')),
                        setting.substring(setting.indexOf('=') + 1));
            }
            return map;
        }

        /// As the outcome of a transfer names it.
        String path() {
            return name.equals("shm") || name.equals("cma") ? name : "tcp";
        }

        /// Memory that peers on this host map is in a file; files in memory have small pages.
        LimitProgram.Pages pages() {
            return name.equals("shm") ? LimitProgram.Pages.SHARED : LimitProgram.Pages.HUGE;
        }

        String[] all(String[] more) {
            return Stream.of(settings, more).flatMap(Arrays::stream).toArray(String[]::new);
        }
    }

    private static final List<Way> WAYS =
            List.of(
                    new Way("tcp", "TCP", "shared-memory=false", "checksum=false"),
                    new Way("crc", "TCP with CRC32C", "shared-memory=false"),
                    new Way("v2", "TCP as towards real Mooncake", "extension=false"),
                    new Way("shm", "shared memory"),
                    new Way("cma", "cross memory attach"));

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        int[] blocks =
                ints(
                        args,
                        "--blocks=",
                        quick ? "65536,1048576" : "4096,65536,262144,1048576,16777216,67108864");
        int[] batches = ints(args, "--batches=", "1,32");
        int[] threads = ints(args, "--threads=", quick ? "1" : "1,2");
        int rounds = ints(args, "--rounds=", "5")[0];
        List<String> ways = List.of(option(args, "--ways=", "tcp,crc,v2,shm,cma").split(","));
        String more = option(args, "--settings=", "");
        String[] settings = more.isEmpty() ? new String[0] : more.split(",");
        long memory = (long) ints(args, "--memory=", String.valueOf(MEMORY_MIB))[0] << 20;
        List<Shape> shapes = Shape.sweep(threads, blocks, batches, memory);
        boolean alone = args.contains("--no-peers");
        if (!alone) {
            Peers.printStreams(shapes, quick);
        }
        for (Way way : WAYS) {
            if (ways.contains(way.name())) {
                var limit = LimitProgram.start(memory, way.pages());
                // Mooncake is the peer of the first way only: it has no other.
                try (var peers =
                        alone || !way.name().equals("tcp")
                                ? Peers.none()
                                : Peers.start(limit, memory)) {
                    sweep(way, settings, memory, shapes, limit, peers, rounds, quick);
                } finally {
                    if (limit.isPresent()) {
                        limit.get().close();
                    }
                }
            }
        }
        System.out.println(
                "Limit: limit.c, compiled by gcc -O2, two processes with as many threads and connections, which stay,"
                        + " gathering writes, no checks,\nthe same socket options, memory of the same size and pages;"
                        + " within a host a copy in memory by as many threads.\nRatios are those of the rounds; other figures medians of them.\nCPU: processor time of both"
                        + " sides, of Mooncake with the start of its initiator.");
    }

    private static void sweep(
            Way way,
            String[] settings,
            long memory,
            List<Shape> shapes,
            Optional<LimitProgram> limit,
            Peers peers,
            int rounds,
            boolean quick)
            throws Exception {
        // What the engine allocates is shared; other memory is as an inference engine has it.
        boolean registered = way.name().equals("cma");
        var config = EngineConfig.from(way.map(settings));
        try (var arena = Arena.ofShared();
                var target = new Target(memory, registered, way.all(settings));
                var engine = JavaTransferEngine.start(config)) {
            var sweep =
                    new Sweep(
                            engine,
                            target,
                            registered
                                    ? engine.register(HostPages.allocate(memory, arena))
                                    : engine.allocate(memory),
                            way.text(),
                            way.path(),
                            config.mostShares(),
                            limit,
                            peers,
                            rounds);
            System.out.println("## " + way.text());
            sweep.latency(quick ? 5_000 : 20_000);
            sweep.run(shapes, quick ? QUICK_ROUND : ROUND, quick ? 1 : 2);
        }
    }

    private static String option(List<String> args, String option, String byDefault) {
        return args.stream()
                .filter(arg -> arg.startsWith(option))
                .map(arg -> arg.substring(option.length()))
                .findFirst()
                .orElse(byDefault);
    }

    private static int[] ints(List<String> args, String option, String byDefault) {
        return Arrays.stream(option(args, option, byDefault).split(","))
                .mapToInt(Integer::parseInt)
                .toArray();
    }
}
