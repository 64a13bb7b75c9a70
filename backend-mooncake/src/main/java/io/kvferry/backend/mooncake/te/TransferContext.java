// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.concurrent.Executor;

/// What every transfer of an engine needs.
///
/// @param helpers runs the further shares of a large transfer; may refuse, the first thread does
///   them then
record TransferContext(
        EngineConfig config,
        RegionTable regions,
        Holders holders,
        GateSets gateSets,
        PeerTable peers,
        Notifier notifier,
        Executor helpers,
        String segmentName) {
    boolean own(String name) {
        return name.equals(segmentName) || name.equals("/" + segmentName);
    }
}
