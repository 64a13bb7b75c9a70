// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.List;
import java.util.Objects;

/// All that one worker half has to say after one step, in one piece.
///
/// @param payload for the scheduler half of the same connector; of one rank, not merged
/// @param stats since the last report
/// @param events since the last report; only what is really stored or gone
public record StepReport(
        int rank,
        long step,
        List<Completion> completions,
        Payload payload,
        Stats stats,
        List<CacheEvent> events) {
    public StepReport {
        Objects.requireNonNull(payload, "payload");
        Objects.requireNonNull(stats, "stats");
        completions = List.copyOf(completions);
        events = List.copyOf(events);
    }
}
