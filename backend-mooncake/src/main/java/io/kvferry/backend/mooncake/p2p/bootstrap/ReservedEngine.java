// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

/// The engine that runs the bootstrap service. No other engine may register its id or its rank.
///
/// @param incarnation of this start, which its workers register with
public record ReservedEngine(String engineId, int dpRank, String incarnation) {}
