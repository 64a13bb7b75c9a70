// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.function.LongSupplier;

/// Runs what is to be measured until the compilers of all JVMs that take part are done with it. On
/// two processors they have none to spare beside it, and take what a first round would be blamed
/// for.
public final class WarmUp {
    private static final Duration LONGEST = Duration.ofSeconds(30);

    /// The compilers are done when they have compiled for no more than so many milliseconds in so
    /// long a time.
    private static final Duration QUIET = Duration.ofSeconds(1);

    private static final long QUIET_MILLIS = 30;

    private WarmUp() {}

    /// What is to be measured, once or a few times.
    @FunctionalInterface
    public interface Step {
        void run() throws Exception;
    }

    /// Repeats the step, and says so when the compilers were still busy after the longest time.
    ///
    /// @param least time that it takes, since the compilers also rest before they begin
    /// @param compileMillis for which the compilers of all JVMs have compiled so far
    public static void until(Duration least, LongSupplier compileMillis, Step step)
            throws Exception {
        var earliest = Deadline.in(least);
        var latest = Deadline.in(LONGEST);
        boolean quiet = false;
        while (!latest.passed() && !(quiet && earliest.passed())) {
            long compiled = compileMillis.getAsLong();
            var look = Deadline.in(QUIET);
            while (!look.passed()) {
                step.run();
            }
            quiet = compileMillis.getAsLong() - compiled <= QUIET_MILLIS;
        }
        if (!quiet) {
            System.out.println("# the compilers were still busy when what follows was measured");
        }
    }
}
