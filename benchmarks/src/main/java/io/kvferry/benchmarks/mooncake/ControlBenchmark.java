// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Request and answer of a hand-over between two JVMs over the side channel: a connection for each
/// open exchange, 256 at a time (`side_channel=single`), and one for all (`auto`). Both sides run
/// them on the one thread of their service. The two take turns.
public final class ControlBenchmark implements Benchmark {
    private static final int[] OPEN = {1, 256, 1024};
    private static final byte[] REQUEST = new byte[1024];

    @Override
    public String name() {
        return "mooncake-control";
    }

    @Override
    public String description() {
        return "request and answer of a hand-over: a connection for each beside one for all";
    }

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        int rounds = quick ? 3 : 7;
        var table =
                new Table(
                        "control messages, median of rounds",
                        "open",
                        "held ms",
                        "exchanges/s",
                        "p50 us over the hold",
                        "p99 us",
                        "max us",
                        "CPU us per exchange, both sides");
        try (var child =
                        new ChildJvm(ControlChild.class, List.of(), List.of(), ControlChild.LIMIT);
                var loop = new SerialLoop("requests");
                var channel = new SideChannel("decoder")) {
            child.awaitReady();
            var where = child.await(child.ask("hold 0"));
            var ways = new LinkedHashMap<String, Way>();
            ways.put("single", over(channel, where, SideChannel.Carriage.ALONE));
            ways.put("auto", over(channel, where, SideChannel.Carriage.SHARED));
            for (var way : ways.values()) { // the compilers are done after some seconds
                new Round(loop, way, 64, quick ? 20_000 : 60_000).run(child, 0);
            }
            for (int open : OPEN) {
                int holdMillis = open == 1 ? 0 : 50;
                child.await(child.ask("hold " + holdMillis * 1000));
                int exchanges = open == 1 ? 5_000 : 8 * open;
                var results = new LinkedHashMap<String, Result[]>();
                for (int round = 0; round < rounds; round++) {
                    for (var way : ways.entrySet()) {
                        results.computeIfAbsent(way.getKey(), _ -> new Result[rounds])[round] =
                                new Round(loop, way.getValue(), open, exchanges)
                                        .run(child, holdMillis);
                    }
                }
                results.forEach((way, all) ->
                        table.rowNow(
                                way,
                                open,
                                holdMillis,
                                (long) median(all, 0),
                                (long) median(all, 1),
                                (long) median(all, 2),
                                (long) median(all, 3),
                                median(all, 4)));
            }
        }
        table.print();
    }

    /// What carries requests.
    @FunctionalInterface
    private interface Way {
        /// @param answered runs when the answer is there
        void ask(Runnable answered);
    }

    private static Way over(SideChannel channel, String address, SideChannel.Carriage carriage) {
        var limit = Duration.ofMinutes(1);
        return answered -> {
            var _ =
                    channel.exchange(
                            address,
                            REQUEST,
                            limit,
                            limit,
                            SideChannel.Turn.LONG,
                            carriage,
                            new SideChannel.Answers() {
                                @Override
                                public SideChannel.Reading onAnswer(byte[] message) {
                                    answered.run();
                                    return SideChannel.Reading.DONE;
                                }

                                @Override
                                public void onLost(Failure failure) {
                                    throw new IllegalStateException(failure.toString());
                                }
                            });
        };
    }

    /// One figure of each column.
    private record Result(double[] figures) {}

    private static double median(Result[] all, int figure) {
        var sorted = Arrays.stream(all).mapToDouble(each -> each.figures()[figure]).sorted();
        return sorted.toArray()[all.length / 2];
    }

    /// Keeps a number of exchanges open until as many as wanted are over.
    private static final class Round {
        private final SerialLoop loop;
        private final Way way;
        private final int open;
        private final long[] nanos;
        private final CountDownLatch left;
        private int begun;
        private int ended;

        Round(SerialLoop loop, Way way, int open, int exchanges) {
            this.loop = loop;
            this.way = way;
            this.open = open;
            this.nanos = new long[exchanges];
            this.left = new CountDownLatch(exchanges);
        }

        Result run(ChildJvm child, int holdMillis) throws InterruptedException {
            long there = Long.parseLong(child.await(child.ask("cpu")));
            long here = ProcessCost.cpuSoFar();
            long began = System.nanoTime();
            for (int i = 0; i < open; i++) {
                loop.post(this::begin);
            }
            if (!left.await(ControlChild.LIMIT.toSeconds(), TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " exchanges are not answered");
            }
            long took = System.nanoTime() - began;
            here = ProcessCost.cpuSoFar() - here;
            there = Long.parseLong(child.await(child.ask("cpu"))) - there;
            Arrays.sort(nanos);
            double hold = holdMillis * 1000.0;
            int count = nanos.length;
            return new Result(
                    new double[] {
                        count * 1e9 / took,
                        nanos[count / 2] / 1e3 - hold,
                        nanos[(int) (count * 0.99)] / 1e3 - hold,
                        nanos[count - 1] / 1e3 - hold,
                        (here + there) / 1e3 / count
                    });
        }

        /// On the loop.
        private void begin() {
            if (begun < nanos.length) {
                begun++;
                long at = System.nanoTime();
                way.ask(() -> loop.post(() -> end(at)));
            }
        }

        private void end(long at) {
            nanos[ended++] = System.nanoTime() - at;
            begin();
            left.countDown();
        }
    }
}
