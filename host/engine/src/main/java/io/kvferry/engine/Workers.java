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
    /// When a child dies or hangs, all children are ended and started again, and both halves of the
    /// connectors are reopened as another incarnation of the engine: the cache, the regions that
    /// connectors registered, their handshakes and what peers know belong together. The prefix
    /// cache and the encoder cache are then empty. Requests that had computed or loaded something
    /// start over if their policy for failed loads is RECOMPUTE; otherwise they fail with the code
    /// of the loss (PEER_LOST, TIMEOUT). A request that is running when workers are lost for the
    /// second time fails as well, since it may be the cause. Waiting requests stay. Meanwhile
    /// [EngineStats#degraded] says so. After [EngineConfig#workerRestarts] losses the engine gives
    /// up: every request fails and [EngineStats#health] says why.
    ///
    /// @param jvmOptions options for the children, such as `-Xmx2g`
    /// @param hostConfig passed to the [io.kvferry.engine.worker.WorkerHost] that the child finds,
    ///   so that the composition root can build the same parts there as here
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
