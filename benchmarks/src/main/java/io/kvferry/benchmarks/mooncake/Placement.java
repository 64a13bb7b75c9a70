// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// The CPUs on which the two sides of a row run, the same for all contenders. Without pinning, the
/// scheduler puts the threads of a short transfer on one CPU or on two, which alone changes the
/// time of a row by up to a factor of four.
enum Placement {
    /// As the scheduler likes.
    FREE(List.of()),
    /// The asking side on the first processor, the serving side on the second.
    APART(List.of("0", "1")),
    /// Both on the first.
    TOGETHER(List.of("0", "0"));

    private static final int LIMIT_SECONDS = 10;

    private final List<String> processors;

    Placement(List<String> processors) {
        this.processors = processors;
    }

    /// A process that asks stays where this says, with all its threads.
    void asking(long process) throws IOException, InterruptedException {
        put(process, 0);
    }

    /// A process that serves stays where this says, with all its threads.
    void serving(long process) throws IOException, InterruptedException {
        put(process, 1);
    }

    private void put(long process, int side) throws IOException, InterruptedException {
        if (processors.isEmpty()) {
            return;
        }
        var taskset =
                new ProcessBuilder(
                                "taskset",
                                "--all-tasks",
                                "--cpu-list",
                                "--pid",
                                processors.get(side),
                                String.valueOf(process))
                        .redirectErrorStream(true)
                        .start();
        var said = taskset.inputReader().lines().toList();
        if (!taskset.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS) || taskset.exitValue() != 0) {
            taskset.destroyForcibly();
            throw new IOException("taskset failed: " + String.join(" ", said));
        }
    }
}
