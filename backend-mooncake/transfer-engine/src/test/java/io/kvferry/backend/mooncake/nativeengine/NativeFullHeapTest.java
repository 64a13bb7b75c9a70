// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// A transfer that the library has started while the heap is full still ends: its caller does not
/// wait for memory.
class NativeFullHeapTest {
    @TempDir Path root;

    @Test
    void aTransferThatBeginsInAFullHeapEnds() throws Exception {
        var command =
                List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xmx48m",
                        "-XX:+UseSerialGC",
                        "--enable-native-access=ALL-UNNAMED",
                        "-cp",
                        System.getProperty("java.class.path"),
                        FullHeap.class.getName(),
                        TransferEngineDouble.compile().toString());
        Path said = Files.createTempFile(root, "child", ".log");
        var child =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(said.toFile())
                        .start();
        try {
            boolean ended = child.waitFor(180, TimeUnit.SECONDS);
            assertThat(ended).as("%s", Files.readString(said)).isTrue();
        } finally {
            child.destroyForcibly();
        }
        assertThat(Files.readAllLines(said)).contains("it ended");
        assertThat(child.exitValue()).isZero();
    }

    /// The child.
    static final class FullHeap {
        /// The double begins with a task of this length when the first byte at its source is set.
        private static final int HELD = 783;

        private static final int FULL = 20;

        private FullHeap() {}

        public static void main(String[] args) throws Exception {
            var config = NativeConfig.of(Path.of(args[0]), "127.0.0.1");
            try (var here = NativeTransferEngine.start(config);
                    var there = NativeTransferEngine.start(config)) {
                var near = here.allocate(1 << 16);
                var far = there.allocate(1 << 16);
                for (int i = 0; i < 20; i++) { // all of it has run once when the heap is full
                    set(near, i % 2);
                    var each = write(here, there, near, far);
                    var quiet = each.quiesced().toCompletableFuture();
                    set(near, 1);
                    each.outcome().toCompletableFuture().join();
                    quiet.join();
                }
                set(near, 0);
                var held = write(here, there, near, far);
                var outcome = held.outcome().toCompletableFuture();
                var quiet = held.quiesced().toCompletableFuture();
                var limit = Deadline.in(Duration.ofSeconds(30));
                var ballast = new ArrayDeque<byte[]>(1 << 17);
                int piece = 1 << 20;
                int refused = 0;
                while (!outcome.isDone() && !limit.passed()) {
                    try {
                        ballast.add(new byte[piece]);
                    } catch (OutOfMemoryError _) {
                        piece = Math.max(16, piece / 2);
                        refused += piece == 16 ? 1 : 0;
                    }
                    if (refused == FULL) {
                        set(near, 1);
                    }
                }
                boolean ended = outcome.isDone();
                ballast.clear();
                System.out.println(ended ? "it ended" : "it waits for memory");
                quiet.get(60, TimeUnit.SECONDS);
            }
            System.exit(0);
        }

        private static void set(RegisteredMemory memory, int first) {
            memory.memory().set(ValueLayout.JAVA_BYTE, 0, (byte) first);
        }

        private static EngineTransfer write(
                NativeTransferEngine here,
                NativeTransferEngine there,
                RegisteredMemory near,
                RegisteredMemory far) {
            return here.submit(
                    EngineRequest.write(
                            there.info().segmentName(),
                            Ranges.of(near.address(), far.address(), HELD),
                            Deadline.in(Duration.ofSeconds(120))));
        }
    }
}
