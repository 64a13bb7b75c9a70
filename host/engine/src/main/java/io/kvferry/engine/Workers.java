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
    /// A child that dies or hangs ends the engine's service: every request fails with the code of
    /// the loss (PEER_LOST, TIMEOUT), the other children are ended, and [EngineStats#health] says
    /// why. The engine does not start a child again, since the cache, the regions that connectors
    /// registered, their handshakes and what peers know of this incarnation would all have to be
    /// made anew on every rank; restarting the engine's process does just that.
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
