// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import java.util.Map;
import java.util.Objects;

/// What kvferry peers add to a request; other peers ignore the keys. It lets the decoder end its
/// wait at any moment: a write after that is refused by the decoder's transfer engine.
///
/// @param namespace what the decoder's KV means (model, runner, dtype, block size), as hex; a
///   prefiller of another one refuses
/// @param incarnation of the decoder's transfer engine
/// @param writeWithinMillis how long the decoder accepts writes, counted from receipt
/// @param grants write capability by decoder request id
public record PeerExtension(
        String namespace, String incarnation, long writeWithinMillis, Map<String, Long> grants) {
    public PeerExtension {
        Objects.requireNonNull(namespace, "namespace");
        Objects.requireNonNull(incarnation, "incarnation");
        grants = Map.copyOf(grants);
        if (writeWithinMillis < 0) {
            throw new IllegalArgumentException("negative kvferry_write_within_ms");
        }
    }
}
