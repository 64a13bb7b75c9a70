// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

/// Runs interleavings outside of the tests, one after the other: for src/test/mutants, and to find
/// out how often a seed fails.
final class ChaosSeeds {
    private ChaosSeeds() {}

    /// @param arguments the first seed, the one after the last, and after how many that failed to
    ///   stop
    public static void main(String[] arguments) {
        long from = Long.parseLong(arguments[0]);
        long to = Long.parseLong(arguments[1]);
        int most = Integer.parseInt(arguments[2]);
        int failed = 0;
        long seed = from;
        for (; seed < to && failed < most; seed++) {
            try {
                ChaosRun.check(seed);
            } catch (Throwable e) { // whatever an engine without a fix comes to
                failed++;
                var cause = e.getCause() == null ? e : e.getCause();
                System.out.println("seed " + seed + ": " + firstLine(cause));
            }
        }
        System.out.printf(
                "%d interleavings, %d failed; %d children opened again, %d hung in their close%n",
                seed - from, failed, ChaosRun.reopened(), ChaosRun.hung());
        System.exit(failed == 0 ? 0 : 1); // an engine that hangs keeps its threads
    }

    private static String firstLine(Throwable e) {
        return e.toString().strip().lines().findFirst().orElse("");
    }
}
