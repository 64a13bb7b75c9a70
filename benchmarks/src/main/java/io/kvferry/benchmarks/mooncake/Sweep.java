// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.WarmUp;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntUnaryOperator;
import java.util.function.ObjIntConsumer;
import java.util.stream.Collectors;

/// Measurements of one engine against one target over one transport. This engine, the reference and
/// the peer alternate in rounds, so that changing load on the machine affects all of them.
final class Sweep implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofMinutes(1);

    /// Bytes of a transfer from which on the engine takes one more connection, or copying thread.
    private static final long SOCKET_SHARE = 2 << 20;

    private static final long COPY_SHARE = 4 << 20;

    /// Per operation and number of threads. The compilers take about 1.5 s of CPU time on both
    /// sides together during the first 4 GB, and two CPUs are fully used by sender and receiver.
    private static final Duration WARM_UP = Duration.ofSeconds(3);

    /// What a thread moves in one step of a warm-up, about.
    private static final long WARM_UP_BYTES = 32 << 20;

    /// Of so many short transfers one is timed: the limit's are not, and two looks at the clock
    /// take a hundredth of a short one.
    private static final int TIMED_EACH = 8;

    /// From so many in a round on they are short.
    private static final int MANY = 1024;

    private final JavaTransferEngine engine;
    private final Target target;
    private final RegisteredMemory memory;
    private final String way;
    private final String path;
    private final IntUnaryOperator mostLanes;
    private final Optional<LimitProgram> limit;
    private final Peers peers;
    private final int rounds;
    private final Results results;
    private final List<ExecutorService> asking = new ArrayList<>();

    /// @param path as the outcome of a transfer names it
    /// @param mostLanes of one transfer, by how many threads have one at a time
    Sweep(
            JavaTransferEngine engine,
            Target target,
            RegisteredMemory memory,
            String way,
            String path,
            IntUnaryOperator mostLanes,
            Optional<LimitProgram> limit,
            Peers peers,
            int rounds,
            Results results) {
        this.engine = engine;
        this.target = target;
        this.memory = memory;
        this.way = way;
        this.path = path;
        this.mostLanes = mostLanes;
        this.limit = limit;
        this.peers = peers;
        this.rounds = rounds;
        this.results = results;
    }

    private boolean withinMemory() {
        return !path.equals("tcp");
    }

    private EngineRequest request(Operation operation, Ranges ranges) {
        return new EngineRequest(
                operation,
                target.segmentName,
                ranges,
                Deadline.in(LIMIT),
                "",
                0,
                0,
                Optional.empty());
    }

    private void transfer(EngineRequest request) {
        switch (engine.transfer(request)) {
            case EngineOutcome.Failed failed -> throw failed.failure().toException();
            case EngineOutcome.Completed done -> {
                if (!done.path().equals(path)) {
                    throw new IllegalStateException(
                            way + " was to be measured, but " + done.path() + " carried the bytes");
                }
            }
        }
    }

    /// 4 KiB READ round trips beside those of the limit over a socket.
    void latency(int count) throws Exception {
        var ranges = Ranges.of(memory.address(), target.address, 4096);
        var nanos = new long[count];
        warmUp("latency", () -> readTimes(ranges, nanos));
        for (int round = 0; round < rounds; round++) {
            long before = Allocation.ofAllThreads();
            readTimes(ranges, nanos);
            long allocated = Allocation.ofAllThreads() - before;
            Arrays.sort(nanos);
            results.trips(
                    nanos,
                    limit.isPresent() ? limit.get().ping(4096, count) : new long[0],
                    allocated);
        }
    }

    private void readTimes(Ranges ranges, long[] nanos) {
        for (int i = 0; i < nanos.length; i++) {
            long began = System.nanoTime();
            transfer(request(Operation.READ, ranges));
            nanos[i] = System.nanoTime() - began;
        }
    }

    /// @param length of what this engine measures in one round, about; the limit moves as much
    /// @param peerSeconds that a peer runs for in one round
    void run(List<Shape> shapes, Duration length, int peerSeconds) throws Exception {
        var kinds =
                shapes.stream()
                        .collect(
                                Collectors.groupingBy(
                                        shape -> List.of(shape.operation(), shape.threads()),
                                        LinkedHashMap::new,
                                        Collectors.toList()));
        for (var kind : kinds.values()) {
            warmUp(kind);
        }
        for (Shape shape : shapes) {
            row(shape, length, peerSeconds);
        }
    }

    /// Runs all shapes in turns as their rows do. With fewer threads than in a row, what two do
    /// only when they meet would be compiled in the first rounds of that row.
    private void warmUp(List<Shape> shapes) throws Exception {
        var rows = shapes.stream().map(this::workers).toList();
        var first = shapes.getFirst();
        warmUp(
                first.operation() + " by " + first.threads() + " threads",
                () -> {
                    for (var workers : rows) {
                        int count = (int) Math.max(1, WARM_UP_BYTES / workers[0].bytes());
                        for (Worker worker : workers) {
                            worker.time(1, count);
                        }
                        runAll(workers, Worker::work, count);
                    }
                });
    }

    private void warmUp(String what, WarmUp.Step step) throws Exception {
        WarmUp.until(way + ", " + what, WARM_UP, this::compileMillis, step);
    }

    private long compileMillis() {
        return ProcessCost.now().compileMillis() + target.cost().compileMillis();
    }

    private Worker[] workers(Shape shape) {
        var workers = new Worker[shape.threads()];
        Arrays.setAll(workers, number -> new Worker(shape, number));
        return workers;
    }

    private void row(Shape shape, Duration length, int peerSeconds) throws Exception {
        int lanes =
                shape.lanes(
                        withinMemory() && shape.bytes() / shape.threads() < 2 * COPY_SHARE
                                ? 1
                                : mostLanes.applyAsInt(shape.threads()),
                        withinMemory() ? COPY_SHARE : SOCKET_SHARE);
        var workers = workers(shape);
        int perRound = perRound(workers, length);
        int timedEach = perRound >= MANY ? TIMED_EACH : 1;
        for (Worker worker : workers) {
            worker.time(timedEach, rounds * ((perRound - 1) / timedEach + 1));
        }
        var row = results.row(shape, lanes);
        long allocated = 0;
        for (int round = 0; round < rounds; round++) {
            if (limit.isPresent()) {
                row.limits.add(
                        withinMemory()
                                ? limit.get().copy(shape, lanes, perRound)
                                : limit.get().move(shape, lanes, perRound));
            }
            runAll(workers, Worker::transferOnly, perRound / 4 + 1); // as the limit begins
            var measured = run(shape, workers, perRound);
            row.ours.add(measured.run());
            allocated += measured.heapBytes();
            peers.mooncake(shape, peerSeconds).ifPresent(row.mooncake::add);
        }
        row.heap(
                allocated,
                (long) rounds * perRound * workers.length,
                Arrays.stream(workers).flatMapToLong(w -> Arrays.stream(w.nanos)).toArray());
    }

    /// @param heapBytes that the transfers allocated on this side; what asking the target costs is
    ///   not among them
    private record Measured(Run run, long heapBytes) {}

    /// How many transfers of each worker take so long, about.
    private int perRound(Worker[] workers, Duration length) throws Exception {
        for (int count = 4; ; count *= 2) {
            long began = System.nanoTime();
            runAll(workers, Worker::transferOnly, count);
            long took = System.nanoTime() - began;
            if (took >= length.toNanos() / 4) {
                return Math.max(2, Math.toIntExact(count * length.toNanos() / took));
            }
        }
    }

    private Measured run(Shape shape, Worker[] workers, int count) throws Exception {
        long cpuThere = target.cpuNanos();
        long cpuHere = ProcessCost.cpuSoFar();
        long heap = Allocation.ofAllThreads();
        long began = System.nanoTime();
        runAll(workers, Worker::work, count);
        long took = System.nanoTime() - began;
        heap = Allocation.ofAllThreads() - heap;
        cpuHere = ProcessCost.cpuSoFar() - cpuHere;
        return new Measured(
                new Run(
                        (double) shape.bytes() * count,
                        took,
                        cpuHere + target.cpuNanos() - cpuThere),
                heap);
    }

    /// One thread of a row: the same ranges again and again.
    private final class Worker {
        private final Shape shape;
        private final int number;
        private final Ranges ranges;
        private int timedEach = 1;
        private long[] nanos = {};
        private int timed;

        Worker(Shape shape, int number) {
            this.shape = shape;
            this.number = number;
            this.ranges = new Ranges(shape.batch());
        }

        /// Bytes of a transfer.
        long bytes() {
            return (long) shape.block() * shape.batch();
        }

        /// Keeps the times of every so many of the transfers of [#work], and so many in all.
        void time(int each, int count) {
            timedEach = each;
            timed = 0;
            nanos = new long[count];
        }

        void transferOnly(int count) {
            run(count, false);
        }

        void work(int count) {
            run(count, true);
        }

        private void run(int count, boolean timing) {
            for (int i = 0; i < count; i++) {
                if (!timing || i % timedEach != 0) {
                    transfer(prepare());
                    continue;
                }
                long began = System.nanoTime();
                transfer(prepare());
                nanos[timed++] = System.nanoTime() - began;
            }
        }

        private EngineRequest prepare() {
            ranges.clear();
            for (int i = 0; i < shape.batch(); i++) {
                long offset = ((long) i * shape.threads() + number) * shape.block();
                ranges.add(memory.address() + offset, target.address + offset, shape.block());
            }
            return request(shape.operation(), ranges);
        }
    }

    private void runAll(Worker[] workers, ObjIntConsumer<Worker> work, int count) throws Exception {
        var running = new ArrayList<Future<?>>();
        for (int t = 0; t < workers.length; t++) {
            Worker worker = workers[t];
            running.add(asking(t).submit(() -> work.accept(worker, count)));
        }
        for (var each : running) {
            each.get();
        }
    }

    /// Threads that ask stay for all rows, as those of the limit do: a connection goes back to the
    /// thread that used it last, and the scheduler keeps both ends near each other.
    private ExecutorService asking(int number) {
        while (asking.size() <= number) {
            asking.add(Executors.newSingleThreadExecutor(Thread.ofPlatform().daemon().factory()));
        }
        return asking.get(number);
    }

    @Override
    public void close() {
        asking.forEach(ExecutorService::close);
    }
}
