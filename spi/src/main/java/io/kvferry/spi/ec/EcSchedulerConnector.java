// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.wire.Payload;

import java.util.List;
import java.util.Optional;

/// The scheduler half of an encoder-cache connector. Threads and errors as
/// [io.kvferry.spi.kv.SchedulerConnector].
public interface EcSchedulerConnector extends SchedulerHalf {
    /// A request with items entered the engine; `params` are its `ec_transfer_params`. Always
    /// paired with one [#finish].
    default void onRequest(String requestId, List<EcItem> items, TransferParams params) {}

    /// Whether the item can be loaded: all or nothing, so a Hit has `tokens == item.embeddings()`.
    /// The answer is not a commitment.
    LookupResult lookup(EcItem item);

    /// The engine has room for the item.
    ///
    /// @param load the id under which to load it; empty when the engine encodes it itself. The same
    ///   hash may come for several requests in one step: one load serves all of them, and the
    ///   engine asks for one only.
    void onAllocated(EcItem item, Optional<TransferId> load);

    /// The engine's cache dropped the item; a later request may need it loaded again.
    default void onFreed(String hash) {}

    /// Instructions for the worker halves in this step; drains.
    Payload buildPlan(long step);

    /// The request ended; called before the engine drops its references to items. The subject of a
    /// Hold is the request's id. A Hold covers the request's items that are in the cache at this
    /// time; in an encode-only engine these are all of them. Subjects of loads and saves are
    /// hashes. The returned params become `ec_transfer_params`.
    default FinishDecision finish(String requestId, FinishReason reason) {
        return FinishDecision.RELEASE;
    }
}
