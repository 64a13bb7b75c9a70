// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.util.List;

/// One side-by-side benchmark; registered in `META-INF/services`.
public interface Benchmark {
    /// The word that selects it.
    String name();

    /// One line: what is measured against what.
    String description();

    /// Runs and prints tables to standard output.
    ///
    /// @param args options of its own; every benchmark knows `--quick` (seconds instead of minutes)
    void run(List<String> args) throws Exception;

    /// The word behind an option, or the default where the option is not given.
    static String option(List<String> args, String option, String byDefault) {
        int at = args.indexOf(option);
        return at < 0 ? byDefault : args.get(at + 1);
    }
}
