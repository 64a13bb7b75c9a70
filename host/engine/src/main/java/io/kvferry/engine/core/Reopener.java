// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.core;

import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.SchedulerConnector;

import java.util.Optional;

/// Opens parts of an engine again that were lost, as the engine was configured.
///
/// Threading: scheduler thread, but for [#openWorkers].
public interface Reopener {
    /// The engine under another incarnation: its peers tell by it what belongs to the lost parts.
    EngineInfo nextIncarnation();

    /// @throws RuntimeException when it cannot be opened now
    Optional<SchedulerConnector> openKv(EngineInfo engine);

    /// @throws RuntimeException when it cannot be opened now
    Optional<EcSchedulerConnector> openEc(EngineInfo engine);

    /// Any thread; an interrupt ends it soon, with nothing left open.
    ///
    /// @throws RuntimeException when they cannot be opened now; none is left then
    WorkerGroup openWorkers(EngineInfo engine);
}
