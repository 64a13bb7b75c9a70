// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import java.util.List;

/// Where the worker ranks of an engine run.
public sealed interface Workers {
    /// In the engine's process. A single rank runs on the scheduler thread, several have a thread
    /// each.
    record InProcess() implements Workers {}

    /// Each rank in a child JVM with this JVM's class path.
    ///
    /// @param jvmOptions options for the children, such as `-Xmx2g`
    /// @param hostConfig handed to the [io.kvferry.engine.worker.WorkerHost] that the child finds,
    ///   so that the composition root can build there what it built here
    record ChildProcesses(List<String> jvmOptions, String hostConfig) implements Workers {
        public ChildProcesses {
            jvmOptions = List.copyOf(jvmOptions);
        }
    }
}
