// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.memory.GateSets;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;

import java.util.concurrent.Executor;
import java.util.function.BooleanSupplier;

/// The parts of an engine that every transfer needs.
///
/// @param helpers runs the further shares of a large transfer; may refuse, the first thread does
///   them then
/// @param closing whether the engine is being closed
public record TransferContext(
        EngineConfig config,
        RegionTable regions,
        Holders holders,
        GateSets gateSets,
        PeerTable peers,
        Notifier notifier,
        Executor helpers,
        String segmentName,
        String incarnation,
        GrantTable grants,
        BooleanSupplier closing) {
    boolean own(String name) {
        return name.equals(segmentName) || name.equals("/" + segmentName);
    }
}
