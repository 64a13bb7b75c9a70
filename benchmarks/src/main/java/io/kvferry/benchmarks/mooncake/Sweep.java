// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferOutcome;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.backend.mooncake.te.TransferRequest.Operation;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.Table;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// Measurements of one engine against one target over one way.
///
/// A transfer runs in its caller's thread: what nixlbench calls post is part of tx, and 0 here.
final class Sweep {
    private static final Duration LIMIT = Duration.ofMinutes(1);

    /// Slices of a row, each right after one of the limit: neighbours on the machine come and go,
    /// and this way meet both.
    private static final int SLICES = 7;

    private final JavaTransferEngine engine;
    private final Target target;
    private final RegisteredMemory memory;
    private final String way;
    private final String path;
    private final boolean withinMemory;
    private final Limits limits;

    Sweep(
            JavaTransferEngine engine,
            Target target,
            RegisteredMemory memory,
            String way,
            String path,
            Limits limits) {
        this.engine = engine;
        this.target = target;
        this.memory = memory;
        this.way = way;
        this.path = path;
        this.withinMemory = !path.equals("tcp");
        this.limits = limits;
    }

    private TransferRequest request(Operation operation, Ranges ranges) {
        return new TransferRequest(
                operation, target.segmentName, ranges, Deadline.in(LIMIT), "", 0, Optional.empty());
    }

    private void transfer(TransferRequest request) {
        switch (engine.transfer(request)) {
            case TransferOutcome.Failed failed -> throw failed.failure().toException();
            case TransferOutcome.Completed done -> {
                if (!done.path().equals(path)) {
                    throw new IllegalStateException(
                            way + " was to be measured, but " + done.path() + " carried the bytes");
                }
            }
        }
    }

    /// 4 KiB READ round trips, beside bare sockets, in turns.
    void latency(int rounds) throws Exception {
        var ranges = Ranges.of(memory.address(), target.address, 4096);
        long[] plain = new long[SLICES * rounds];
        long[] nanos = new long[SLICES * rounds];
        long allocated = 0;
        readTimes(ranges, new long[2 * rounds], 0, 2 * rounds);
        for (int slice = 0; slice < SLICES; slice++) {
            Plain.pingPong(target.plainPort, 4096, plain, slice * rounds, rounds);
            long before = Allocation.ofAllThreads();
            readTimes(ranges, nanos, slice * rounds, rounds);
            allocated += Allocation.ofAllThreads() - before;
        }
        Arrays.sort(plain);
        Arrays.sort(nanos);
        double middle = at(plain, 0.5);
        double tail = at(plain, 0.99);
        var table =
                new Table(
                        "4 KiB READ",
                        "p50 us",
                        "p99 us",
                        "ping-pong p50",
                        "ping-pong p99",
                        "ratio p50",
                        "ratio p99",
                        "B/transfer");
        table.row(
                way,
                at(nanos, 0.5) / 1e3,
                at(nanos, 0.99) / 1e3,
                middle / 1e3,
                tail / 1e3,
                at(nanos, 0.5) / middle,
                at(nanos, 0.99) / tail,
                allocated / nanos.length);
        table.print();
    }

    private void readTimes(Ranges ranges, long[] nanos, int from, int count) {
        for (int i = from; i < from + count; i++) {
            long began = System.nanoTime();
            transfer(request(Operation.READ, ranges));
            nanos[i] = System.nanoTime() - began;
        }
    }

    void run(List<Shape> shapes, long bytes) throws Exception {
        var table =
                new Table(
                        way,
                        "threads",
                        "Block Size (B)",
                        "Batch Size",
                        "B/W (GB/Sec)",
                        "Avg Lat. (us)",
                        "Avg Prep (us)",
                        "P99 Prep (us)",
                        "Avg Post (us)",
                        "P99 Post (us)",
                        "Avg Tx (us)",
                        "P99 Tx (us)",
                        "P50 Tx (us)",
                        "B/transfer",
                        "B/descriptor",
                        withinMemory ? "memcpy GB/s" : "sockets GB/s",
                        "of it",
                        "best limit",
                        "of it",
                        "Mooncake GB/s",
                        "times Mooncake");
        for (Shape shape : shapes) {
            row(table, shape, bytes);
        }
        table.print();
    }

    private void row(Table table, Shape shape, long bytes) throws Exception {
        var workers = new Worker[shape.threads()];
        int perSlice = Math.clamp(bytes / shape.bytes() / SLICES, 2, 3_000);
        for (int t = 0; t < workers.length; t++) {
            workers[t] = new Worker(shape, t, SLICES * perSlice);
            workers[t].warmUp();
        }
        limit(shape, perSlice);
        long allocated = 0;
        long total = 0;
        var rates = new double[SLICES];
        var bounds = new double[SLICES];
        for (int slice = 0; slice < SLICES; slice++) {
            bounds[slice] = limit(shape, perSlice);
            long before = Allocation.ofAllThreads();
            long began = System.nanoTime();
            runAll(workers, slice * perSlice, (slice + 1) * perSlice);
            long took = System.nanoTime() - began;
            allocated += Allocation.ofAllThreads() - before;
            total += took;
            rates[slice] = (double) shape.bytes() * perSlice / took;
        }
        double rate = middle(rates);
        double own = middle(bounds);
        double better = withinMemory ? own : Math.max(own, limits.wire(shape.block()));
        int rounds = SLICES * perSlice;
        double perTransfer = (double) allocated / rounds / workers.length;
        double mooncake = limits.mooncake(shape);
        long[] prep = sorted(workers, true);
        long[] tx = sorted(workers, false);
        table.row(
                shape.operation(),
                shape.threads(),
                shape.block(),
                shape.batch(),
                rate,
                total / 1e3 / ((double) rounds * shape.batch()),
                mean(prep) / 1e3,
                at(prep, 0.99) / 1e3,
                0.0,
                0.0,
                mean(tx) / 1e3,
                at(tx, 0.99) / 1e3,
                at(tx, 0.5) / 1e3,
                perTransfer,
                perTransfer / shape.batch(),
                own,
                rate / own,
                better,
                rate / better,
                mooncake,
                mooncake == 0 ? "" : rate / mooncake);
    }

    /// One thread of nixlbench: the same ranges again and again.
    private final class Worker {
        private final Shape shape;
        private final int number;
        private final Ranges ranges;
        private final long[] prepNanos;
        private final long[] txNanos;

        Worker(Shape shape, int number, int rounds) {
            this.shape = shape;
            this.number = number;
            this.ranges = new Ranges(shape.batch());
            this.prepNanos = new long[rounds];
            this.txNanos = new long[rounds];
        }

        void warmUp() {
            for (int i = 0; i < Math.max(3, txNanos.length / 4); i++) {
                transfer(prepare());
            }
        }

        void work(int from, int to) {
            for (int i = from; i < to; i++) {
                long began = System.nanoTime();
                TransferRequest request = prepare();
                long prepared = System.nanoTime();
                transfer(request);
                txNanos[i] = System.nanoTime() - prepared;
                prepNanos[i] = prepared - began;
            }
        }

        private TransferRequest prepare() {
            ranges.clear();
            for (int i = 0; i < shape.batch(); i++) {
                long offset = ((long) i * shape.threads() + number) * shape.block();
                ranges.add(memory.address() + offset, target.address + offset, shape.block());
            }
            return request(shape.operation(), ranges);
        }
    }

    private double limit(Shape shape, int rounds) throws Exception {
        return withinMemory
                ? Plain.memoryCopy(shape.block(), shape.batch(), rounds * shape.bytes())
                : Plain.copy(target.plainPort, memory.memory().asByteBuffer(), shape, rounds);
    }

    private static void runAll(Worker[] workers, int from, int to) throws InterruptedException {
        if (workers.length == 1) {
            workers[0].work(from, to);
            return;
        }
        var running = new Thread[workers.length];
        for (int t = 0; t < workers.length; t++) {
            Worker worker = workers[t];
            running[t] = Thread.ofPlatform().start(() -> worker.work(from, to));
        }
        for (Thread thread : running) {
            thread.join();
        }
    }

    private static double middle(double[] values) {
        Arrays.sort(values);
        return values[values.length / 2];
    }

    private static long[] sorted(Worker[] workers, boolean prep) {
        return Arrays.stream(workers)
                .flatMapToLong(worker -> Arrays.stream(prep ? worker.prepNanos : worker.txNanos))
                .sorted()
                .toArray();
    }

    private static double mean(long[] values) {
        return Arrays.stream(values).average().orElse(0);
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1L, (long) (sorted.length * quantile))];
    }
}
