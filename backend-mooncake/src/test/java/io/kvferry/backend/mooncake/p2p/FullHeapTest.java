// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A prefiller and a decoder in a process whose heap is full for a while, during which strangers
/// call: afterwards all their threads are there, and hand-overs go well.
class FullHeapTest {
    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void handsOverAgainAfterTheHeapWasFull(boolean crossMemory) throws Exception {
        assertThat(
                        FullHeap.run(
                                root,
                                96,
                                Duration.ofSeconds(180),
                                Child.class,
                                Boolean.toString(crossMemory)))
                .contains("all go on");
    }

    static final class Child {
        private static final Duration FULL = Duration.ofSeconds(2);
        private static volatile boolean over;

        private Child() {}

        public static void main(String[] args) throws Exception {
            var options = Map.<String, Object>of("cross_memory", Boolean.parseBoolean(args[0]));
            try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                    var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options)) {
                for (int i = 0; i < 20; i++) {
                    assertThat(handOver(p, d, i)).isInstanceOf(Completion.Completed.class);
                }
                var before = threads();
                int port =
                        Integer.parseInt(p.bootstrap.substring(p.bootstrap.lastIndexOf(':') + 1));
                var stranger = Thread.ofPlatform().start(() -> call(port));
                FullHeap.fill(Deadline.in(FULL));
                over = true;
                stranger.join();
                var limit = Deadline.in(Duration.ofSeconds(60));
                int number = 100;
                Completion.Result last = handOver(p, d, number);
                while (!(last instanceof Completion.Completed) && !limit.passed()) {
                    System.out.println(last);
                    last = handOver(p, d, ++number);
                }
                var lost = new TreeSet<>(before);
                while (!limit.passed()) { // some are replaced
                    lost = new TreeSet<>(before);
                    lost.removeAll(threads());
                    if (lost.isEmpty()) {
                        break;
                    }
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
                }
                if (lost.isEmpty()) { // one that does not know the prefiller yet
                    try (var late = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "l", options)) {
                        last = handOver(p, late, ++number);
                    }
                }
                System.out.println(
                        lost.isEmpty() && last instanceof Completion.Completed
                                ? "all go on"
                                : "lost " + lost + ", " + last);
                System.exit(0);
            }
        }

        private static Completion.Result handOver(TestEngine p, TestEngine d, int number) {
            var hold =
                    p.prefill(
                            p.request("p-" + number, 64, 5, decodeElsewhere("x" + number)),
                            number & 63);
            var target =
                    d.request("d-" + number, 64, 20, prefillAt(p.bootstrap, "p", "x" + number));
            var result = d.await(d.beginDecode(target, 0));
            if (result instanceof Completion.Completed) {
                d.assertHolds(target, 0, number & 63);
                d.finish(target, target.table(), FinishReason.STOP);
            } else {
                d.finish(target, target.table(), FinishReason.ABORT);
                p.revoke(hold);
            }
            p.await(hold);
            return result;
        }

        /// Those that stay as long as the engines are open: threads of pools come and go, and the
        /// JDK's HTTP client and its timer are made anew when they are needed.
        private static TreeSet<String> threads() {
            var names = new TreeSet<String>();
            Thread.getAllStackTraces().keySet().stream()
                    .map(Thread::getName)
                    .filter(name ->
                            !name.matches(
                                    "ForkJoin.*|Thread-\\d+|HttpClient-.*|idle-timeout-task"
                                            + "|kvferry-te-(io|data)-.*"))
                    .forEach(names::add);
            return names;
        }

        private static void call(int port) {
            while (!over) {
                try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                    socket.getOutputStream()
                            .write("GET /query HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.UTF_8));
                } catch (IOException | RuntimeException | Error _) {
                    Thread.onSpinWait();
                }
                LockSupport.parkNanos(1_000_000);
            }
        }
    }
}
