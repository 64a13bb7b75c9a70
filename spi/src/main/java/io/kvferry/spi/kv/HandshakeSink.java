// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.wire.Payload;

import java.util.List;

/// A scheduler half that takes the handshakes of its worker halves.
public interface HandshakeSink {
    /// Once, after all workers registered; one payload per rank, in rank order, EMPTY from a rank
    /// with none.
    void onHandshakes(List<Payload> byRank);
}
