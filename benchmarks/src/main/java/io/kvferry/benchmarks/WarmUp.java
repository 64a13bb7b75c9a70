// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.function.LongSupplier;

/// Runs what is to be measured until the compilers of all JVMs that take part are done with it. On
/// two processors the compilers compete with what is measured, and the first rounds would include
/// their time.
public final class WarmUp {
    private static final Duration LONGEST = Duration.ofSeconds(30);

    private static final Duration LOOK = Duration.ofSeconds(1);

    /// The compilers are done when they have compiled for less of the time of a look.
    private static final double QUIET = 0.03;

    private WarmUp() {}

    /// What is to be measured, once or a few times.
    @FunctionalInterface
    public interface Step {
        void run() throws Exception;
    }

    /// Repeats the step, and prints a line when the compilers were still busy after the longest
    /// time.
    ///
    /// @param what is to be measured, for that line
    /// @param least time that it takes: the compilers also rest before they begin
    /// @param compileMillis for which the compilers of all JVMs have compiled so far
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
