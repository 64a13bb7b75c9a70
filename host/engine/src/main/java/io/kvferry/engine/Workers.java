// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.worker.WorkerLauncher;

import java.util.List;

/// Where the worker ranks of an engine run.
public sealed interface Workers {
    /// In the engine's process. A single rank runs on the scheduler thread, several have a thread
    /// each.
    record InProcess() implements Workers {}

    /// Each rank in a child JVM with this JVM's class path.
    ///
    /// When a child dies or hangs, all of them are ended and started again, and both halves of the
    /// connectors are opened anew, as another incarnation of the engine: the cache, the regions
    /// that connectors registered, their handshakes and what peers know belong together. The prefix
    /// cache and the encoder cache are empty then. Requests that had computed or loaded something
    /// start over if their policy for failed loads is RECOMPUTE, else they fail with the code of
    /// the loss (PEER_LOST, TIMEOUT); a request that runs when workers are lost for the second time
    /// fails as well, since it may be what ends them. Waiting requests stay. [EngineStats#degraded]
    /// tells meanwhile. After [EngineConfig#workerRestarts] the engine gives up: every request
    /// fails and [EngineStats#health] says why.
    ///
    /// @param jvmOptions options for the children, such as `-Xmx2g`
    /// @param hostConfig handed to the [io.kvferry.engine.worker.WorkerHost] that the child finds,
    ///   so that the composition root can build there what it built here
    record ChildProcesses(List<String> jvmOptions, String hostConfig) implements Workers {
        public ChildProcesses {
            jvmOptions = List.copyOf(jvmOptions);
        }
    }

    /// As [ChildProcesses], started in another way.
    ///
    /// @param hostConfig handed to the [io.kvferry.engine.worker.WorkerHost] of each worker
    record Launched(WorkerLauncher launcher, String hostConfig) implements Workers {}
}
