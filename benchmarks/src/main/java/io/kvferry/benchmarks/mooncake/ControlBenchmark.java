// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import picocli.CommandLine.Command;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/// Request-response of a hand-off between two JVMs over the side channel: one connection per open
/// exchange, 256 at a time (`side_channel=single`), or one connection for all (`auto`). Both sides
/// handle them on their service's single thread. The two modes alternate, and the ratio is taken
/// per round.
@Command(
        name = "mooncake-control",
        description =
                "Request and answer of a hand-over: a connection for each beside one for all.")
public final class ControlBenchmark extends Benchmark {
    private static final int[] OPEN = {1, 256, 1024};
    private static final byte[] REQUEST = new byte[1024];
    private static final String SINGLE = "single";
    private static final String AUTO = "auto";
    private static final int FIGURES = 5;

    @Override
    protected void run() throws Exception {
        int rounds = quick ? 5 : 9;
        var table =
                new Table(
                        "median of rounds; ratio: min median max",
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
            var alone = over(channel, where, SideChannel.Carriage.ALONE);
            var shared = over(channel, where, SideChannel.Carriage.SHARED);
            for (var way : List.of(alone, shared)) { // the compilers are done after some seconds
                new Round(loop, way, 64, quick ? 20_000 : 60_000).run(child, 0);
            }
            for (int open : OPEN) {
                int holdMillis = open == 1 ? 0 : 50;
                child.await(child.ask("hold " + holdMillis * 1000));
                int exchanges = open == 1 ? 5_000 : 8 * open;
                var single = new Result[rounds];
                var auto = new Result[rounds];
                for (int round = 0; round < rounds; round++) {
                    boolean singleFirst = round % 2 == 0;
                    if (singleFirst) {
                        single[round] =
                                new Round(loop, alone, open, exchanges).run(child, holdMillis);
                    }
                    auto[round] = new Round(loop, shared, open, exchanges).run(child, holdMillis);
                    if (!singleFirst) {
                        single[round] =
                                new Round(loop, alone, open, exchanges).run(child, holdMillis);
                    }
                }
                row(table, SINGLE, open, holdMillis, figure -> median(single, figure));
                row(table, AUTO, open, holdMillis, figure -> median(auto, figure));
                row(
                        table,
                        AUTO + " / " + SINGLE,
                        open,
                        holdMillis,
                        figure -> ratio(auto, single, figure));
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

    private static void row(
            Table table, String way, int open, int holdMillis, IntFunction<String> figure) {
        var cells = new Object[3 + FIGURES];
        cells[0] = way;
        cells[1] = open;
        cells[2] = holdMillis;
        Arrays.setAll(cells, i -> i < 3 ? cells[i] : figure.apply(i - 3));
        table.rowNow(cells);
    }

    private static String median(Result[] all, int figure) {
        var sorted =
                Arrays.stream(all).mapToDouble(each -> each.figures()[figure]).sorted().toArray();
        return String.format(Locale.ROOT, "%.1f", sorted[all.length / 2]);
    }

    /// Of the results of one round to each other.
    private static String ratio(Result[] of, Result[] to, int figure) {
        var ratios = new double[of.length];
        Arrays.setAll(ratios, i -> of[i].figures()[figure] / to[i].figures()[figure]);
        Arrays.sort(ratios);
        return String.format(
                Locale.ROOT,
                "%.2f %.2f %.2f",
                ratios[0],
                ratios[ratios.length / 2],
                ratios[ratios.length - 1]);
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
