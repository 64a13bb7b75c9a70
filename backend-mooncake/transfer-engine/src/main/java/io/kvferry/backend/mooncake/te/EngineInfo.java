// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

/// The identity and abilities of an engine.
///
/// @param segmentName the name peers open: `host:rpcPort` with `P2PHANDSHAKE`, the configured name
///   otherwise
/// @param host the advertised host
/// @param rpcPort the handshake port that really was bound
/// @param kind `java` or `native`
/// @param transport to a peer that is no kvferry peer: `tcp`, `rdma`
/// @param incarnation hex id of this start of the engine; empty for the native engine, which has
///   none
/// @param grants whether [TransferEngine#grant] works
public record EngineInfo(
        String segmentName,
        String host,
        int rpcPort,
        String kind,
        String transport,
        String incarnation,
        boolean grants) {}
