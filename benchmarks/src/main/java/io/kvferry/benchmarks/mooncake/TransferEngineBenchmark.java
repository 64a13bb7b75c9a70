// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferOutcome;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.backend.mooncake.te.TransferRequest.Operation;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;
import io.kvferry.spi.Deadline;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The transfer engine between two JVMs of one host, beside its limits, measured alternately in the
/// same run.
///
/// Columns and units are nixlbench's; a transfer blocks its caller, so post is part of tx. Options:
/// `--quick`, `--threads=1,2`, `--blocks=4096,...`, `--batches=1,...`.
public final class TransferEngineBenchmark implements Benchmark {
    private static final long MEMORY = 256 << 20;
    private static final Duration LIMIT = Duration.ofMinutes(1);

    @Override
    public String name() {
        return "mooncake-te";
    }

    @Override
    public String description() {
        return "Mooncake transfer engine, READ and WRITE, against plain sockets, memory copies, iperf3, UCX, Mooncake";
    }

    /// One way to reach the peer.
    private record Way(String name, String... settings) {
        Map<String, String> map() {
            Map<String, String> map = new HashMap<>();
            for (String setting : settings) {
                map.put(
                        setting.substring(0, setting.indexOf('=')),
                        setting.substring(setting.indexOf('=') + 1));
            }
            return map;
        }
    }

    private static final List<Way> WAYS =
            List.of(
                    new Way("tcp, CRC32C", "shared-memory=false"),
                    new Way("tcp", "shared-memory=false", "checksum=false"),
                    new Way("tcp v2 (native)", "extension=false"),
                    new Way("shared memory"));

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        int[] blocks =
                ints(
                        args,
                        "--blocks=",
                        quick
                                ? "4096,65536,262144,1048576,16777216"
                                : "4096,8192,16384,32768,65536,131072,262144,524288,1048576,2097152,4194304,8388608,16777216,"
                                        + "33554432,67108864");
        int[] batches = ints(args, "--batches=", quick ? "1,32" : "1,8,32,128");
        int[] threads = ints(args, "--threads=", quick ? "1" : "1,2");
        Peers.print(quick);
        for (Way way : WAYS) {
            try (var target = new Target(MEMORY, way.settings());
                    var engine = JavaTransferEngine.start(EngineConfig.from(way.map()))) {
                var bench = new Bench(engine, target, engine.allocate(MEMORY), way.name());
                System.out.println("## " + way.name());
                bench.latency(quick ? 2_000 : 20_000);
                for (Operation operation : List.of(Operation.WRITE, Operation.READ)) {
                    bench.sweep(operation, blocks, batches, threads, quick ? 512L << 20 : 2L << 30);
                }
            }
        }
    }

    private static int[] ints(List<String> args, String option, String byDefault) {
        String text =
                args.stream()
                        .filter(arg -> arg.startsWith(option))
                        .map(arg -> arg.substring(option.length()))
                        .findFirst()
                        .orElse(byDefault);
        return Arrays.stream(text.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    /// Measurements over one way.
    private record Bench(
            JavaTransferEngine engine, Target target, RegisteredMemory memory, String way) {
        private boolean shared() {
            return way.equals("shared memory");
        }

        private TransferRequest request(Operation operation, Ranges ranges) {
            return new TransferRequest(
                    operation,
                    target.segmentName,
                    ranges,
                    Deadline.in(LIMIT),
                    "",
                    0,
                    Optional.empty());
        }

        private void transfer(Operation operation, Ranges ranges) {
            TransferOutcome outcome = engine.transfer(request(operation, ranges));
            if (outcome instanceof TransferOutcome.Failed failed) {
                throw failed.failure().toException();
            }
        }

        /// 4 KiB READ round trips, beside bare sockets.
        void latency(int rounds) throws Exception {
            var ranges = Ranges.of(memory.address(), target.address, 4096);
            long[] plain = Plain.pingPong(target.plainPort, 4096, rounds);
            long[] nanos = new long[rounds];
            long allocated = 0;
            for (int i = -rounds / 2; i < rounds; i++) {
                if (i == 0) {
                    allocated = Allocation.ofAllThreads();
                }
                long began = System.nanoTime();
                transfer(Operation.READ, ranges);
                if (i >= 0) {
                    nanos[i] = System.nanoTime() - began;
                }
            }
            allocated = Allocation.ofAllThreads() - allocated;
            Arrays.sort(nanos);
            var table =
                    new Table(
                            "4 KiB READ",
                            "p50 us",
                            "p99 us",
                            "ping-pong p50",
                            "ping-pong p99",
                            "ratio p50",
                            "B/op");
            table.row(
                    way,
                    at(nanos, 0.5) / 1e3,
                    at(nanos, 0.99) / 1e3,
                    at(plain, 0.5) / 1e3,
                    at(plain, 0.99) / 1e3,
                    at(nanos, 0.5) / at(plain, 0.5),
                    allocated / rounds);
            table.print();
        }

        void sweep(Operation operation, int[] blocks, int[] batches, int[] threads, long bytes)
                throws Exception {
            var table =
                    new Table(
                            way + " " + operation,
                            "threads",
                            "Block Size (B)",
                            "Batch Size",
                            "B/W (GB/Sec)",
                            "Avg Lat. (us)",
                            "Avg Tx (us)",
                            "P50 Tx (us)",
                            "P99 Tx (us)",
                            "B/descriptor",
                            shared() ? "memcpy GB/s" : "2 sockets GB/s",
                            "ratio");
            for (int count : threads) {
                for (int block : blocks) {
                    for (int batch : batches) {
                        if ((long) block * batch * count <= MEMORY) {
                            row(table, operation, block, batch, count, bytes);
                        }
                    }
                }
            }
            table.print();
        }

        private void row(
                Table table, Operation operation, int block, int batch, int threads, long bytes)
                throws Exception {
            double limit = limit(operation, block, batch, bytes);
            int rounds = Math.clamp(bytes / ((long) block * batch * threads), 8, 20_000);
            long[][] nanos = new long[threads][rounds];
            var ranges = new Ranges[threads];
            for (int t = 0; t < threads; t++) {
                ranges[t] = new Ranges(batch);
                for (int i = 0; i < batch; i++) {
                    long offset = ((long) i * threads + t) * block;
                    ranges[t].add(memory.address() + offset, target.address + offset, block);
                }
                for (int i = 0; i < Math.max(3, rounds / 4); i++) {
                    transfer(operation, ranges[t]);
                }
            }
            long allocated = Allocation.ofAllThreads();
            long began = System.nanoTime();
            runAll(
                    threads,
                    t -> {
                        for (int i = 0; i < rounds; i++) {
                            long start = System.nanoTime();
                            transfer(operation, ranges[t]);
                            nanos[t][i] = System.nanoTime() - start;
                        }
                    });
            long total = System.nanoTime() - began;
            allocated = Allocation.ofAllThreads() - allocated;
            long[] all = Arrays.stream(nanos).flatMapToLong(Arrays::stream).sorted().toArray();
            double rate = (double) block * batch * rounds * threads / total;
            // Once more after, because neighbours come and go.
            double limitAfter = limit(operation, block, batch, bytes);
            double better = Math.max(limit, limitAfter);
            table.row(
                    "",
                    threads,
                    block,
                    batch,
                    rate,
                    total / 1e3 / ((double) rounds * batch),
                    Arrays.stream(all).average().orElse(0) / 1e3,
                    at(all, 0.5) / 1e3,
                    at(all, 0.99) / 1e3,
                    (double) allocated / rounds / threads / batch,
                    better,
                    rate / better);
        }

        private double limit(Operation operation, int block, int batch, long bytes)
                throws Exception {
            return shared()
                    ? copyRate(block, batch, bytes / 2)
                    : Plain.copy(
                            target.plainPort,
                            operation == Operation.WRITE,
                            block,
                            batch,
                            2,
                            bytes / 2);
        }
    }

    private static double copyRate(int block, int batch, long bytes) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment from = arena.allocate(MEMORY, 4096);
            MemorySegment to = arena.allocate(MEMORY, 4096);
            from.fill((byte) 1);
            to.fill((byte) 2);
            long rounds = Math.max(4, bytes / block);
            long began = 0;
            for (long i = -rounds / 2; i < rounds; i++) {
                if (i == 0) {
                    began = System.nanoTime();
                }
                // The same addresses again and again, as the transfers do.
                long at = Math.floorMod(i, (long) batch) * block;
                MemorySegment.copy(from, at, to, at, block);
            }
            return (double) rounds * block / (System.nanoTime() - began);
        }
    }

    /// A piece of work for thread `t`.
    private interface Work {
        void run(int t);
    }

    private static void runAll(int threads, Work work) throws InterruptedException {
        if (threads == 1) {
            work.run(0);
            return;
        }
        var running = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int number = t;
            running[t] = Thread.ofPlatform().start(() -> work.run(number));
        }
        for (Thread thread : running) {
            thread.join();
        }
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1L, (long) (sorted.length * quantile))];
    }
}
