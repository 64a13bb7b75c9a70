// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.io.IOException;
import java.nio.file.Path;

/// Another program that moves files as the store does: every one made, written whole by one thread
/// and closed, or opened, read whole and closed.
public interface FileLimit {
    /// In the head of a table.
    String title();

    /// Writes or reads `files` files of `bytes` each, whose names begin with `name` and a dot.
    Work run(
            Path folder,
            String name,
            boolean write,
            long bytes,
            int files,
            int threads,
            boolean direct)
            throws IOException, InterruptedException;

    /// @param rate bytes per second
    /// @param cpuMicros processor time per file
    /// @param bytes all that was moved
    record Work(double rate, double cpuMicros, long bytes) {
        /// The same work and so much more time.
        Work and(long nanos) {
            return new Work(bytes / (bytes / rate + nanos / 1e9), cpuMicros, bytes);
        }
    }
}
