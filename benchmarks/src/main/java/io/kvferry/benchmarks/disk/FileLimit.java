// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;

/// Another program that moves files as the store does: every one made, written whole by one thread
/// and closed, or opened, read whole and closed.
public interface FileLimit {
    /// In the head of a table.
    String title();

    /// Writes or reads all files of a turn.
    Work run(Turn turn) throws IOException, InterruptedException;

    /// The folders below which files made in these end up.
    default List<Path> homes(List<Path> folders) {
        return folders;
    }

    /// @param folders in which the files are made, by each thread in one of them or divided evenly;
    ///   they are there
    /// @param name with which their names begin, followed by a dot
    /// @param shape of the blocks of which each file consists
    record Turn(
            List<Path> folders,
            String name,
            boolean write,
            Shape shape,
            int files,
            int threads,
            boolean direct) {
        static final int MOST_BYTES_PER_CALL = 1 << 20;

        /// Of each file.
        long bytes() {
            return shape.fileBytes();
        }

        /// The folders as the limits are told them.
        String joined() {
            return folders.stream().map(Path::toString).collect(Collectors.joining(":"));
        }

        /// What a call moves at most: all of a direct file, so that the medium gets it at once, and
        /// else as much as a call of the store.
        long bytesPerCall() {
            return direct ? bytes() : Math.min(bytes(), MOST_BYTES_PER_CALL);
        }

        Work took(double seconds, double cpuMicros) {
            long all = bytes() * files;
            return new Work(all / seconds, cpuMicros / files, all);
        }
    }

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
