// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/// Runs interleavings, several at a time: an engine mostly waits for its limits, which are in real
/// time. Also outside of the tests, for src/test/mutants and to find out how often a seed fails.
final class ChaosSeeds {
    private static final int PROGRESS = 500;

    /// An interleaving that broke an invariant, or whatever an engine without a fix comes to.
    record Failed(long seed, Throwable why) {
        /// For a line of a list.
        String brief() {
            var cause = why.getCause() == null ? why : why.getCause();
            return "seed " + seed + ": " + cause.toString().strip().lines().findFirst().orElse("");
        }
    }

    private final long end;
    private final int most;
    private final Consumer<String> log;
    private final AtomicLong next;
    private final AtomicLong done = new AtomicLong();
    private final List<Failed> failed = Collections.synchronizedList(new ArrayList<>());

    private ChaosSeeds(long from, long to, int most, Consumer<String> log) {
        this.next = new AtomicLong(from);
        this.end = to;
        this.most = most;
        this.log = log;
    }

    /// Runs the seeds from `from` to `to` (exclusive).
    ///
    /// @param threads interleavings at a time
    /// @param most after how many that failed to stop
    /// @param log hears of each that failed, and now and then how far it is
    /// @return those that failed, in the order of their seeds
    static List<Failed> run(long from, long to, int threads, int most, Consumer<String> log) {
        var seeds = new ChaosSeeds(from, to, most, log);
        var workers = new ArrayList<Thread>();
        for (int i = 0; i < threads; i++) {
            workers.add(Thread.ofPlatform().daemon().name("chaos-" + i).start(seeds::work));
        }
        try {
            for (var worker : workers) {
                worker.join();
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException("interrupted at seed " + seeds.next.get(), e);
        } finally {
            seeds.next.set(to);
        }
        seeds.failed.sort(Comparator.comparingLong(Failed::seed));
        return List.copyOf(seeds.failed);
    }

    private void work() {
        for (long seed = next.getAndIncrement();
                seed < end && failed.size() < most;
                seed = next.getAndIncrement()) {
            try {
                ChaosRun.check(seed);
            } catch (Throwable e) {
                var broken = new Failed(seed, e);
                failed.add(broken);
                log.accept(broken.brief());
            }
            long count = done.incrementAndGet();
            if (count % PROGRESS == 0) {
                log.accept(count + " interleavings, about up to seed " + seed);
            }
        }
    }

    /// @param arguments the first seed, the one after the last, after how many that failed to stop,
    ///   and how many to run at a time
    public static void main(String[] arguments) {
        long from = Long.parseLong(arguments[0]);
        long to = Long.parseLong(arguments[1]);
        int most = Integer.parseInt(arguments[2]);
        int threads = Integer.parseInt(arguments[3]);
        var failed = run(from, to, threads, most, System.out::println);
        System.out.printf(
                "interleavings of seeds %d to %d, %d failed; %d children opened again, %d hung in their close%n",
                from, to, failed.size(), ChaosRun.reopened(), ChaosRun.hung());
        System.exit(failed.isEmpty() ? 0 : 1); // an engine that hangs keeps its threads
    }
}
