// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Waits by running steps, because time in a harness advances only with its steps.
public final class Patience {
    /// No call of a step may take longer.
    public static final Duration STEP_LIMIT = Duration.ofSeconds(10);

    private Patience() {}

    /// Runs `step`, with a pause before each, until the condition holds; fails at the limit.
    public static void until(
            String what, Duration limit, BooleanSupplier condition, Runnable step) {
        long end = System.nanoTime() + limit.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + limit + ": " + what);
            }
            LockSupport.parkNanos(200_000);
            step.run();
        }
    }
}
