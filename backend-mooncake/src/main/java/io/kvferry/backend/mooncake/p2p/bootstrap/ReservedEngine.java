// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

/// The engine that runs the bootstrap service: its id and its rank are nobody else's.
///
/// @param incarnation of this start, which its workers register with
public record ReservedEngine(String engineId, int dpRank, String incarnation) {}
