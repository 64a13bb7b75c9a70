// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// For tests of what goes on after a heap was full: a JVM with a small heap, and what fills it.
public final class FullHeap {
    private FullHeap() {}

    /// Runs a program on this class path until it ends, which it must do by itself and well.
    ///
    /// @param folder for its output
    /// @return the lines that it printed
    public static List<String> run(
            Path folder, int heapMegabytes, Duration limit, Class<?> program, String... arguments)
            throws IOException, InterruptedException {
        var command =
                new ArrayList<>(
                        List.of(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-Xmx" + heapMegabytes + "m",
                                "-XX:+UseSerialGC",
                                "--enable-native-access=ALL-UNNAMED",
                                "-cp",
                                System.getProperty("java.class.path"),
                                program.getName()));
        command.addAll(List.of(arguments));
        Path said = Files.createTempFile(folder, "child", ".log");
        var child =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(said.toFile())
                        .start();
        try {
            boolean ended = child.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS);
            assertThat(ended).as("ended: %s", Files.readString(said)).isTrue();
        } finally {
            child.destroyForcibly();
        }
        assertThat(child.exitValue()).as("%s", Files.readString(said)).isZero();
        return Files.readAllLines(said);
    }

    /// Leaves nothing of this JVM's heap until the limit, whatever others give back.
    public static void fill(Deadline limit) {
        var ballast = new ArrayDeque<byte[]>(1 << 17);
        int piece = 1 << 20;
        while (!limit.passed()) {
            try {
                ballast.add(new byte[piece]);
            } catch (OutOfMemoryError _) {
                piece = Math.max(16, piece / 2);
            }
        }
    }

    /// Runs something while nothing is left of this JVM's heap.
    ///
    /// @return whether there was too little memory for it
    public static boolean during(Runnable work) {
        var ballast = new ArrayDeque<byte[]>(1 << 17);
        for (int piece = 1 << 20; piece >= 16; ) {
            try {
                ballast.add(new byte[piece]);
            } catch (OutOfMemoryError _) {
                piece /= 2;
            }
        }
        try {
            work.run();
            return false;
        } catch (OutOfMemoryError _) {
            return true;
        } finally {
            ballast.clear();
        }
    }
}
