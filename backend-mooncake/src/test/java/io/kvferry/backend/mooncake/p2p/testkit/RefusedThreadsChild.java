// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/// Two engines that hand over while threads are refused at random, and then none is any more.
/// Prints `seed N passed` per seed, `failed` with the reason, and at last `places` where threads
/// were refused.
public final class RefusedThreadsChild {
    private static final int ROUNDS = 5;
    private static final int REQUESTS = 4;
    private static final int TOKENS = 64;
    private static final int FOREIGN = 99;
    private static final Duration RECOVERY = Duration.ofSeconds(60);
    private static final Duration LONGEST_CLOSE = Duration.ofSeconds(60);
    private static final PrintStream OUT = System.out;

    private static final Map<String, Integer> REFUSED = RefusedThreads.counts();

    private final Random random;
    private int completed;
    private int failed;
    private int names;

    private RefusedThreadsChild(long seed) {
        this.random = new Random(seed);
    }

    /// @param arguments the first seed, and how many
    public static void main(String[] arguments) {
        long first = Long.parseLong(arguments[0]);
        for (long seed = first; seed < first + Long.parseLong(arguments[1]); seed++) {
            var run = new RefusedThreadsChild(seed);
            try {
                run.play();
                OUT.println(
                        "seed "
                                + seed
                                + " passed: "
                                + run.completed
                                + " loads done, "
                                + run.failed
                                + " failed");
            } catch (Throwable t) {
                RefusedThreads.end();
                OUT.println("failed with seed " + seed + ": " + text(t));
                Runtime.getRuntime().halt(1);
            }
        }
        OUT.println("places " + REFUSED);
        Runtime.getRuntime().halt(0);
    }

    /// In one line, which a parent reads.
    private static String text(Throwable t) {
        var all = new StringBuilder();
        for (var cause = t; cause != null; cause = cause.getCause()) {
            all.append(cause)
                    .append(
                            Arrays.stream(cause.getStackTrace())
                                    .limit(14)
                                    .map(frame -> " < " + frame)
                                    .collect(Collectors.joining()))
                    .append(" || ");
        }
        return all.toString().replace('\n', ' ');
    }

    private void refuse() {
        RefusedThreads.begin(new Random(random.nextLong()), 2 + random.nextInt(6), REFUSED);
    }

    private void play() throws InterruptedException {
        var options =
                Map.<String, Object>of(
                        "cross_memory", random.nextBoolean(),
                        "transfer_timeout", "5s",
                        "abort_request_timeout", "10s");
        var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
        var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options);
        refuse();
        for (int round = 0; round < ROUNDS; round++) {
            handOver(p, d);
        }
        RefusedThreads.end();
        recover(p, d);
        for (var engine : List.of(d, p)) {
            if (random.nextBoolean()) {
                refuse();
            }
            close(engine);
            RefusedThreads.end();
        }
    }

    /// Several at a time; each ends in time, well or with a code, and no block stays held.
    private void handOver(TestEngine p, TestEngine d) {
        var holds = new ArrayList<TransferId>();
        var loads = new ArrayList<TransferId>();
        var requests = new ArrayList<FakeRequest>();
        for (int i = 0; i < REQUESTS; i++) {
            var name = "r" + names++;
            int block = i * TOKENS / TestEngine.BLOCK_TOKENS;
            holds.add(p.prefill(p.request(name, TOKENS, block, decodeElsewhere(name)), i));
            requests.add(d.request(name, TOKENS, block, prefillAt(p.bootstrap, "p", name)));
            loads.add(d.beginDecode(requests.get(i), 0));
            if (random.nextInt(6) == 0) {
                d.revoke(loads.get(i));
            }
        }
        for (int i = 0; i < REQUESTS; i++) {
            if (d.await(loads.get(i)) instanceof Completion.Completed) {
                completed++;
                d.assertHolds(requests.get(i), 0, i);
            } else {
                failed++;
                d.compute(requests.get(i), FOREIGN);
            }
        }
        for (int i = 0; i < REQUESTS; i++) {
            if (p.resultNow(holds.get(i)).isEmpty()) {
                p.revoke(holds.get(i));
            }
            var _ = p.await(holds.get(i));
        }
        for (int i = 0; i < REQUESTS; i++) {
            if (!(d.await(loads.get(i)) instanceof Completion.Completed)) {
                d.assertHolds(requests.get(i), 0, FOREIGN);
            }
        }
    }

    /// A connection that was refused may cost the first one that comes behind.
    private void recover(TestEngine p, TestEngine d) throws InterruptedException {
        var limit = Deadline.in(RECOVERY);
        while (true) {
            int before = completed;
            int revocations = failed;
            handOver(p, d);
            if (completed - before + failed - revocations > 0
                    && completed - before >= REQUESTS - 1) {
                return;
            }
            if (limit.passed()) {
                throw new AssertionError("nothing is handed over though there are threads again");
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }

    /// May fail with a code while threads are refused, and then not again.
    private static void close(TestEngine engine) throws InterruptedException {
        var closing = new Closing(engine);
        if (closing.run()) {
            return;
        }
        RefusedThreads.end();
        if (!closing.run()) {
            throw new AssertionError("does not close though there are threads", closing.thrown);
        }
    }

    private static final class Closing {
        private final TestEngine engine;
        private Throwable thrown = new AssertionError("not closed");

        Closing(TestEngine engine) {
            this.engine = engine;
        }

        boolean run() throws InterruptedException {
            var ended = new boolean[1];
            var thread =
                    Thread.ofPlatform()
                            .daemon()
                            .unstarted(() -> {
                                try {
                                    engine.close();
                                    ended[0] = true;
                                } catch (KvFerryException e) {
                                    thrown = e;
                                } catch (Throwable t) {
                                    thrown = new AssertionError("closing fails without a code", t);
                                }
                            });
            thread.start();
            if (!thread.join(LONGEST_CLOSE)) {
                var stuck = new AssertionError("a close does not end");
                stuck.setStackTrace(thread.getStackTrace());
                throw stuck;
            }
            if (thrown instanceof AssertionError uncoded && uncoded.getCause() != null) {
                throw uncoded;
            }
            return ended[0];
        }
    }
}
