// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.wire.Payload;

/// A worker half with something to tell its scheduler half before the first request, such as the
/// address of its listener ([ConnectorCapabilities.Feature#HANDSHAKE]).
public interface HandshakeSource {
    /// Once, after `registerRegions`.
    Payload handshake();
}
