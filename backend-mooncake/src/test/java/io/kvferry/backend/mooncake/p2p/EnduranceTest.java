// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.Held;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Many hand-overs, one in a hundred of which fails in one of three ways: what the process holds
/// stays as it is.
class EnduranceTest {
    /// MiB of native memory that come and go by themselves: stacks of threads, code that was
    /// compiled, what the allocator keeps.
    private static final long NOISE = 32;

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Timeout(300)
    void nothingGrowsOverManyHandOvers(boolean crossMemory) throws IOException {
        run(600, crossMemory);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Tag("soak")
    @Timeout(3_600)
    void nothingGrowsOverAHundredThousandHandOvers(boolean crossMemory) throws IOException {
        run(Integer.getInteger("kvferry.soak.hand_overs", 100_000), crossMemory);
    }

    private static void run(int handOvers, boolean crossMemory) throws IOException {
        var options = Map.<String, Object>of("cross_memory", crossMemory);
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options)) {
            // What keeps the last 16,384 transfers is full then.
            int warm = Math.max(300, handOvers / 5);
            for (int i = 0; i < warm; i++) {
                handOver(p, d, i);
            }
            var before = Held.now();
            for (int i = warm; i < handOvers; i++) {
                handOver(p, d, i);
            }
            var after = Held.now();
            var limit = Deadline.in(Duration.ofSeconds(90));
            while (hasGrown(before, after) && !limit.passed()) { // what ends by itself, has to
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
                after = Held.now();
            }
            System.out.println(
                    handOvers
                            + (crossMemory ? " hand-overs: " : " hand-overs over TCP: ")
                            + before
                            + ", then "
                            + after);
            assertThat(hasGrown(before, after)).as("%s, then %s", before, after).isFalse();
        }
    }

    private static boolean hasGrown(Held before, Held after) {
        return after.heap() >= before.heap() + 8
                || after.buffers() >= before.buffers() + 8
                || after.resident() >= before.resident() + NOISE
                || after.descriptors() >= before.descriptors() + 16
                || after.threads() >= before.threads() + 16;
    }

    private static void handOver(TestEngine p, TestEngine d, int number) {
        if (number % 100 == 99) {
            switch (number / 100 % 3) {
                case 0 -> holdEnds(p, d, number);
                case 1 -> loadIsRevoked(p, d, number);
                default -> engineIsUnknown(p, d, number);
            }
        } else {
            var hold = prefill(p, number);
            var target = target(d, p, number, "p");
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, number & 63);
            d.finish(target, target.table(), FinishReason.STOP);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        }
        p.results.clear(); // else they alone would grow
        d.results.clear();
    }

    private static TransferId prefill(TestEngine p, int number) {
        return p.prefill(
                p.request("p-" + number, 64, 5, decodeElsewhere("x" + number)), number & 63);
    }

    private static FakeRequest target(TestEngine d, TestEngine p, int number, String engine) {
        return d.request("d-" + number, 64, 20, prefillAt(p.bootstrap, engine, "x" + number));
    }

    /// Before anybody asks for it.
    private static void holdEnds(TestEngine p, TestEngine d, int number) {
        revoke(p, prefill(p, number));
        fails(d, target(d, p, number, "p"));
    }

    /// Before its prefill is done.
    private static void loadIsRevoked(TestEngine p, TestEngine d, int number) {
        var target = target(d, p, number, "p");
        revoke(d, d.beginDecode(target, 0));
        d.finish(target, target.table(), FinishReason.ABORT);
        revoke(p, prefill(p, number));
    }

    private static void engineIsUnknown(TestEngine p, TestEngine d, int number) {
        fails(d, target(d, p, number, "nobody"));
        revoke(p, prefill(p, number));
    }

    private static void fails(TestEngine d, FakeRequest target) {
        assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Failed.class);
        d.finish(target, target.table(), FinishReason.ABORT);
    }

    /// Of a load or a hold, which may have ended by itself.
    private static void revoke(TestEngine engine, TransferId id) {
        engine.revoke(id);
        engine.await(id);
    }
}
