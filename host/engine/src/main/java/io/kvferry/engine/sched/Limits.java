// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import java.time.Duration;

/// The numbers that bound the scheduler; [io.kvferry.engine.EngineConfig] describes them.
public record Limits(
        int stepTokens,
        int maxRunning,
        int maxQueued,
        int encoderSlots,
        int encoderStepBudget,
        boolean prefixCache,
        boolean encodeOnly,
        boolean scoresPrompts,
        Duration pendingLookup,
        Duration load,
        Duration hold,
        Duration holdPatience,
        Duration revoke,
        Duration step,
        Duration close,
        Duration idle,
        int workerRestarts,
        Duration workerRestartWindow,
        Duration connectorPause,
        Duration connectorOpen) {}
