// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.function.LongSupplier;

/// Repeats the measured step until the JIT compilers of all participating JVMs are idle. On a
/// two-core machine they compete with the measured code, and the first rounds would include their
/// time.
public final class WarmUp {
    private static final Duration LONGEST = Duration.ofSeconds(30);

    private static final Duration LOOK = Duration.ofSeconds(1);

    /// The compilers count as idle when they use less than this share of an observation interval.
    private static final double QUIET = 0.03;

    private WarmUp() {}

    /// What is to be measured, once or a few times.
    @FunctionalInterface
    public interface Step {
        void run() throws Exception;
    }

    /// Repeats the step; prints a line if the compilers were still busy at the time limit.
    ///
    /// @param what name of the measurement, for that line
    /// @param least shortest duration, because the compilers also pause before they start
    /// @param compileMillis compilation time of all JVMs so far
    public static void until(String what, Duration least, LongSupplier compileMillis, Step step)
            throws Exception {
        var earliest = Deadline.in(least);
        var latest = Deadline.in(LONGEST);
        boolean quiet = false;
        while (!latest.passed() && !(quiet && earliest.passed())) {
            long compiled = compileMillis.getAsLong();
            long began = System.nanoTime();
            var look = Deadline.in(LOOK);
            while (!look.passed()) {
                step.run();
            }
            double millis = (System.nanoTime() - began) / 1e6; // a step may take longer than a look
            quiet = compileMillis.getAsLong() - compiled <= QUIET * millis;
        }
        if (!quiet) {
            System.out.println(
                    "# " + what + ": the compilers were still busy when it was measured");
        }
    }
}
