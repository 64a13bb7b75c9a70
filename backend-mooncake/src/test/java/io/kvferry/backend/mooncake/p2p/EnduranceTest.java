// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/// Many hand-overs, one in a hundred of which fails: what the process holds stays as it is.
class EnduranceTest {
    /// What the process holds, in MiB where it is memory.
    private record Held(long heap, long buffers, long resident, long descriptors, long threads) {
        static Held now() throws IOException {
            System.gc();
            var runtime = Runtime.getRuntime();
            long buffers =
                    ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                            .mapToLong(BufferPoolMXBean::getMemoryUsed)
                            .sum();
            return new Held(
                    (runtime.totalMemory() - runtime.freeMemory()) >> 20,
                    buffers >> 20,
                    // The collector takes of the heap what it pleases, up to its limit.
                    (residentKib() >> 10) - (runtime.totalMemory() >> 20),
                    count("/proc/self/fd"),
                    ManagementFactory.getThreadMXBean().getThreadCount());
        }

        private static long count(String folder) throws IOException {
            try (var files = Files.list(Path.of(folder))) {
                return files.count();
            }
        }

        /// KiB.
        private static long residentKib() throws IOException {
            return Files.readAllLines(Path.of("/proc/self/status")).stream()
                    .filter(line -> line.startsWith("VmRSS:"))
                    .mapToLong(line -> Long.parseLong(line.replaceAll("[^0-9]", "")))
                    .sum();
        }
    }

    @Test
    @Timeout(300)
    void nothingGrowsOverManyHandOvers() throws IOException {
        run(600);
    }

    @Test
    @Tag("soak")
    @Timeout(3_600)
    void nothingGrowsOverAHundredThousandHandOvers() throws IOException {
        run(100_000);
    }

    private static void run(int handOvers) throws IOException {
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", Map.of());
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", Map.of())) {
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
            System.out.println(handOvers + " hand-overs: " + before + ", then " + after);
            assertThat(after.heap()).as("heap").isLessThan(before.heap() + 24);
            assertThat(after.buffers()).as("buffers").isLessThan(before.buffers() + 8);
            assertThat(after.resident())
                    .as("resident outside of the heap")
                    .isLessThan(before.resident() + 192);
            assertThat(after.descriptors()).as("descriptors").isLessThan(before.descriptors() + 16);
            assertThat(after.threads()).as("threads").isLessThan(before.threads() + 16);
        }
    }

    private static void handOver(TestEngine p, TestEngine d, int number) {
        var name = "x" + number;
        var hold = p.prefill(p.request("p-" + number, 64, 5, decodeElsewhere(name)), number & 63);
        boolean fails = number % 100 == 99;
        if (fails) {
            p.revoke(hold);
            assertThat(p.await(hold)).isInstanceOf(Completion.Revoked.class);
        }
        var target = d.request("d-" + number, 64, 20, prefillAt(p.bootstrap, "p", name));
        var result = d.await(d.beginDecode(target, 0));
        if (fails) {
            assertThat(result).isInstanceOf(Completion.Failed.class);
        } else {
            assertThat(result).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, number & 63);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        }
        p.results.clear(); // else they alone would grow
        d.results.clear();
    }
}
