// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.ConnectorChange;

import java.util.List;

/// One step, from the scheduler to every rank.
///
/// @param number counts up from 1
/// @param limit no rank may take longer
/// @param kvPlan the KV connector's plan
/// @param ecPlan the encoder-cache connector's plan
/// @param freedItems hashes to drop from the encoder cache before anything else
/// @param placedItems items that are encoded, or loaded, from this step on
/// @param encodes items to encode
/// @param items requests that compute; the list and its items belong to the scheduler and are
///   reused after the step
/// @param ended requests that ended or lost their blocks since the previous step
/// @param kvChange what becomes of the KV connector's worker halves, before its plan is executed
public record StepPlan(
        long number,
        Deadline limit,
        Payload kvPlan,
        List<TransferId> kvRevoked,
        Payload ecPlan,
        List<TransferId> ecRevoked,
        List<String> freedItems,
        List<CachePlace> placedItems,
        List<EncodeTask> encodes,
        List<? extends PlannedItem> items,
        List<String> ended,
        ConnectorChange kvChange,
        ConnectorChange ecChange) {
    /// Whether the model runs.
    public boolean forward() {
        return !items.isEmpty();
    }
}
