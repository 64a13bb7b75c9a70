// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.spi.observe.Stats;

import java.util.Map;

/// A snapshot of an engine, for `/metrics` and tests.
///
/// @param waiting requests that wait for room or for a lookup
/// @param loading requests that wait for an asynchronous load
/// @param ready of the waiting ones, those whose load has ended
/// @param deferred of the waiting ones, those that the last step passed over because a connector
///   has not answered yet or the items that they need are under way
/// @param running requests that take part in steps
/// @param preempted of the waiting ones, those that ran before
/// @param held ended requests whose blocks a connector still holds
/// @param freeBlocks blocks that nobody holds (they may still be cached)
/// @param cachedBlocks of the free ones, those that the prefix cache can still use
/// @param leasedBlocks block references under connector leases
/// @param quarantinedBlocks blocks whose revocation a worker did not answer in time
/// @param encoderFree free rows of the encoder cache
/// @param steps steps so far; idle ones do not count
/// @param counters engine counters since the start, Prometheus-like names (`requests_finished`,
///   `prompt_tokens`)
/// @param kvConnector what the KV connector counted, all ranks and both halves folded
/// @param ecConnector what the encoder-cache connector counted
/// @param health empty while all is well, else why the engine refuses requests, or which of its
///   plugins is out of order
/// @param degraded empty while all is well, else what the engine has to do without for now although
///   it takes requests: workers that are started again, connectors that are off
public record EngineStats(
        int waiting,
        int loading,
        int ready,
        int deferred,
        int running,
        int preempted,
        int held,
        int freeBlocks,
        int totalBlocks,
        int cachedBlocks,
        int leasedBlocks,
        int quarantinedBlocks,
        int encoderFree,
        long steps,
        Map<String, Long> counters,
        Stats kvConnector,
        Stats ecConnector,
        String health,
        String degraded) {
    public EngineStats {
        counters = Map.copyOf(counters);
    }

    /// A counter, 0 when it never moved.
    public long counter(String name) {
        return counters.getOrDefault(name, 0L);
    }
}
