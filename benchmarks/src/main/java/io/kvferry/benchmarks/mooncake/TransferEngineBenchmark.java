// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.toolkit.memory.HostPages;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

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
@Command(
        name = "mooncake-te",
        description =
                "Mooncake transfer engine, READ and WRITE, in turns with a C program and Mooncake; beside iperf3 and UCX.")
public final class TransferEngineBenchmark extends Benchmark {
    private static final int MEMORY_MIB = 512;
    private static final Duration ROUND = Duration.ofSeconds(1);
    private static final Duration QUICK_ROUND = Duration.ofMillis(400);
    private static final int[] BLOCKS = {4096, 65536, 262144, 1048576, 16777216, 67108864};
    private static final int[] QUICK_BLOCKS = {65536, 1048576};

    @Option(names = "--work", split = ",", description = "Of WRITE, READ.")
    private List<Operation> work = List.of(Operation.WRITE, Operation.READ);

    @Option(names = "--blocks", split = ",", paramLabel = "BYTES", description = "Sizes.")
    private int @Nullable [] givenBlocks;

    @Option(names = "--batches", split = ",", description = "Ranges of a request.")
    private int[] batches = {1, 32};

    @Option(names = "--threads", split = ",", description = "That ask at a time (1, 2).")
    private int @Nullable [] givenThreads;

    @Option(names = "--rounds", description = "Of a row, in each start.")
    private int rounds = 5;

    @Option(
            names = "--starts",
            description =
                    "How often all processes are started afresh; a row has the rounds of all starts.")
    private int starts = 1;

    @Option(names = "--ways", split = ",", description = "Of tcp, crc, v2, shm, cma.")
    private List<String> ways = List.of("tcp", "crc", "v2", "shm", "cma");

    @Option(
            names = "--settings",
            split = ",",
            description = "Of the engines, as lanes-per-transfer=2.")
    private String[] settings = {};

    @Option(
            names = "--memory",
            paramLabel = "MIB",
            description = "Of each side; rows that need more are left out.")
    private long memoryMib = MEMORY_MIB;

    @Option(
            names = "--place",
            description =
                    "Where both sides run: ${COMPLETION-CANDIDATES} (taskset, two processors).")
    private Placement place = Placement.FREE;

    @Option(names = "--no-peers", description = "Without Mooncake, iperf3 and UCX.")
    private boolean alone;

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
    protected void run() throws Exception {
        refuseUnknown("--ways", ways, WAYS.stream().map(Way::name).toList());
        if (starts < 1 || rounds < 1) {
            throw refusal("--starts and --rounds from 1 on");
        }
        int[] blocks = givenBlocks != null ? givenBlocks : quick ? QUICK_BLOCKS : BLOCKS;
        int[] threads =
                givenThreads != null ? givenThreads : quick ? new int[] {1} : new int[] {1, 2};
        List<Shape> shapes = Shape.sweep(work, threads, blocks, batches, memoryMib << 20);
        if (!alone) {
            Peers.printStreams(shapes, quick);
        }
        for (Way way : WAYS) {
            if (ways.contains(way.name())) {
                var results = new Results();
                for (int start = 0; start < starts; start++) {
                    start(way, shapes, results);
                }
                System.out.println("## " + way.text());
                results.print(way.text());
            }
        }
        System.out.println(
                "Limit: limit.c, compiled by gcc -O2, two processes with as many threads and connections, which stay,"
                        + " gathering writes, no checks,\nthe same socket options, memory of the same size and pages;"
                        + " within a host a copy in memory by as many threads.\nRatios are those of the rounds; other figures medians of them.\nCPU: processor time of both"
                        + " sides, of Mooncake with the start of its initiator.");
    }

    /// One start of all processes, and the rounds in it.
    private void start(Way way, List<Shape> shapes, Results results) throws Exception {
        long memory = memoryMib << 20;
        var limit = LimitProgram.start(memory, way.pages());
        // Mooncake is the peer of the first way only: it has no other.
        try (var peers =
                alone || !way.name().equals("tcp") ? Peers.none() : Peers.start(limit, memory)) {
            sweep(way, shapes, limit, peers, results);
        } finally {
            if (limit.isPresent()) {
                limit.get().close();
            }
        }
    }

    private void sweep(
            Way way, List<Shape> shapes, Optional<LimitProgram> limit, Peers peers, Results results)
            throws Exception {
        long memory = memoryMib << 20;
        // What the engine allocates is shared; other memory is as an inference engine has it.
        boolean registered = way.name().equals("cma");
        var config = EngineConfig.from(way.map(settings));
        try (var arena = Arena.ofShared();
                var target = new Target(memory, registered, way.all(settings));
                var engine = JavaTransferEngine.start(config);
                var sweep =
                        new Sweep(
                                engine,
                                target,
                                registered
                                        ? engine.register(HostPages.allocate(memory, arena))
                                        : engine.allocate(memory),
                                way.text(),
                                way.path(),
                                threads -> mostLanes(config, way, threads),
                                limit,
                                peers,
                                rounds,
                                results)) {
            place.asking(ProcessHandle.current().pid());
            place.serving(target.pid());
            if (limit.isPresent()) {
                limit.get().place(place);
            }
            peers.place(place);
            sweep.latency(quick ? 5_000 : 20_000);
            sweep.run(shapes, quick ? QUICK_ROUND : ROUND, quick ? 1 : 2);
        }
    }

    /// Of one transfer while others of as many threads are under way: over sockets they share the
    /// processors unless the settings say otherwise.
    private static int mostLanes(EngineConfig config, Way way, int threads) {
        int processors = Runtime.getRuntime().availableProcessors();
        return way.path().equals("tcp")
                ? config.mostLanes(Math.max(1, processors / threads))
                : config.mostSlices();
    }
}
