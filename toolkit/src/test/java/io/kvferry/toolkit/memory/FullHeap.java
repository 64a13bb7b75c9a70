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
import java.util.concurrent.atomic.AtomicReference;

/// For tests of what goes on after a heap was full: a JVM with a small heap, and what fills it.
public final class FullHeap {
    private static final int ARRAY_HEADER = 16;
    private static final byte[] NOTHING = {};
    private static final int MOST_SWEEPS = 10;
    private static final String FAILURES = "failures: ";

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
                                "-XX:TieredStopAtLevel=1",
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

    /// Something that is tried with more and more memory left.
    public interface Trial {
        /// Called with memory enough.
        void prepare();

        /// Called with a few bytes of the heap left.
        ///
        /// @return whether all of it was done
        boolean work();

        /// Called with memory enough. Throws where what the work left is not as it must be.
        ///
        /// @param left bytes that the work had
        void check(int left);
    }

    /// Runs a program that calls [#sweepAndExit].
    ///
    /// @return how often its trial was not done
    public static int runSweep(
            Path folder, int heapMegabytes, Class<?> program, String... arguments)
            throws IOException, InterruptedException {
        List<String> said = run(folder, heapMegabytes, Duration.ofSeconds(240), program, arguments);
        assertThat(said).as("%s", said).anyMatch(line -> line.startsWith(FAILURES));
        return said.stream()
                .filter(line -> line.startsWith(FAILURES))
                .mapToInt(line -> Integer.parseInt(line.substring(FAILURES.length())))
                .sum();
    }

    /// Sweeps as [#sweep], prints the result for [#runSweep], and ends this JVM.
    public static void sweepAndExit(int step, int most, Trial trial) {
        System.out.println("\n" + FAILURES + sweep(step, most, trial));
        System.exit(0);
    }

    /// Runs the trial with 0 bytes of heap left, then with `step` more each time, until it succeeds
    /// three times in a row. With a step of 16 every allocation fails at least once, unless earlier
    /// allocations that are garbage by then make room; a larger step skips some. Restarts, a few
    /// times, if nothing has failed, because garbage of other threads made room.
    ///
    /// @param most bytes after which it must be done
    /// @return how often it was not done
    public static int sweep(int step, int most, Trial trial) {
        var ballast = new ArrayDeque<byte[]>(1 << 17);
        var reserve = new AtomicReference<byte[]>();
        tried(1 << 20, reserve, ballast, trial); // with memory for all: classes are loaded
        int failed = 0;
        for (int sweeps = 0; failed == 0 && sweeps < MOST_SWEEPS; sweeps++) {
            failed = sweepOnce(step, most, reserve, ballast, trial);
        }
        return failed;
    }

    private static int sweepOnce(
            int step,
            int most,
            AtomicReference<byte[]> reserve,
            ArrayDeque<byte[]> ballast,
            Trial trial) {
        int failed = 0;
        int done = 0;
        for (int left = 0; done < 3; left += step) {
            assertThat(left).as("bytes left, and not done").isLessThan(most);
            boolean whole = tried(left, reserve, ballast, trial);
            done = whole ? done + 1 : 0;
            failed += whole ? 0 : 1;
        }
        return failed;
    }

    private static boolean tried(
            int left, AtomicReference<byte[]> reserve, ArrayDeque<byte[]> ballast, Trial trial) {
        trial.prepare();
        reserve.set(new byte[left]);
        boolean whole = leaving(reserve, ballast, trial);
        ballast.clear();
        trial.check(left);
        return whole;
    }

    private static boolean leaving(
            AtomicReference<byte[]> reserve, ArrayDeque<byte[]> ballast, Trial trial) {
        for (int piece = 1 << 20; piece >= 16; ) {
            try {
                ballast.add(new byte[piece - ARRAY_HEADER]);
            } catch (OutOfMemoryError _) {
                piece /= 256; // each failure costs two collections
            }
        }
        try {
            reserve.set(NOTHING);
            return trial.work();
        } catch (OutOfMemoryError _) {
            return false;
        }
    }
}
