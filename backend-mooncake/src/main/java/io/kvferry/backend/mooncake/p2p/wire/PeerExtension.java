// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import io.kvferry.spi.memory.CacheNamespace;

import java.util.Map;
import java.util.Objects;

/// The keys that kvferry peers add to a request; other peers ignore them. They let the decoder end
/// its wait at any moment: a write after that is refused by the decoder's transfer engine.
///
/// @param namespace meaning of the decoder's KV (model, runner, dtype, block size), as hex; a
///   prefiller of another one refuses
/// @param layout how the decoder lays a block out, as [#layout] writes it; tells a prefiller of
///   another form or TP size what it may copy
/// @param incarnation of the decoder's transfer engine, empty for one that has none
/// @param writeWithinMillis how long the decoder accepts writes, counted from receipt
/// @param grants write capability by decoder request id; empty where one of the transfer engines
///   knows none
/// @param reader whoever reads for this decoder, which is not to be written into then; empty for a
///   decoder that is written into
/// @param worker the prefiller worker that is meant, as [#worker(int, int)] writes it; another one
///   refuses. Empty for a decoder that does not say
public record PeerExtension(
        String namespace,
        String layout,
        String incarnation,
        long writeWithinMillis,
        Map<String, Long> grants,
        String reader,
        String worker) {
    public PeerExtension {
        Objects.requireNonNull(namespace, "namespace");
        Objects.requireNonNull(layout, "layout");
        Objects.requireNonNull(incarnation, "incarnation");
        Objects.requireNonNull(reader, "reader");
        Objects.requireNonNull(worker, "worker");
        grants = Map.copyOf(grants);
        if (writeWithinMillis < 0) {
            throw new IllegalArgumentException("negative kvferry_write_within_ms");
        }
    }

    /// Of a decoder that is written into.
    public PeerExtension(
            String namespace,
            String layout,
            String incarnation,
            long writeWithinMillis,
            Map<String, Long> grants) {
        this(namespace, layout, incarnation, writeWithinMillis, grants, "");
    }

    /// Of a decoder that does not say which worker it means.
    public PeerExtension(
            String namespace,
            String layout,
            String incarnation,
            long writeWithinMillis,
            Map<String, Long> grants,
            String reader) {
        this(namespace, layout, incarnation, writeWithinMillis, grants, reader, "");
    }

    /// The position of a worker in its engine.
    public static String worker(int tpRank, int ppRank) {
        return tpRank + "/" + ppRank;
    }

    /// Order of the dimensions and version of what lies within a block: equal means that bytes of
    /// one side make sense on the other.
    public static String layout(CacheNamespace namespace) {
        return namespace.layout() + "-" + namespace.layoutVersion();
    }
}
