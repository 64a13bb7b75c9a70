// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;

import java.util.Optional;

/// Looks a waiting request up: how much of it is in the prefix cache, and how much the connector
/// promises beyond that. Skips lookups of requests that still lack blocks.
///
/// Threading: scheduler thread only.
final class PrefixLookup {
    /// A request that lacks blocks or an item is looked up again after this time, even if nothing
    /// has changed.
    private static final long BLOCKED_RETRY_NANOS = 10_000_000;

    private final Limits limits;
    private final KvCache cache;
    private final GuardedKvScheduler kv;

    PrefixLookup(Limits limits, KvCache cache, GuardedKvScheduler kv) {
        this.limits = limits;
        this.cache = cache;
        this.kv = kv;
    }

    /// @param blocks of the prefix cache, noted in the request's table and not held yet
    /// @param localTokens in them
    /// @param promised by the connector, beyond them
    record Found(int blocks, int localTokens, UsableHit promised, LoadMode mode) {}

    /// @return empty while the connector does not know yet
    Optional<Found> find(RequestState request, long now) {
        if (request.sampling().options().scoresPrompt()) {
            // Prompt log-probabilities need the logits, which neither the cache nor a connector
            // keeps.
            return Optional.of(new Found(0, 0, UsableHit.nothing(""), LoadMode.SYNC));
        }
        int blocks = cache.find(request);
        int local = blocks * cache.blockTokens();
        var answer = kv.lookup(request, local);
        if (answer instanceof LookupResult.Pending pending
                && kv.repeats(
                        request.pending,
                        pending,
                        request.id,
                        "the lookup is",
                        limits.pendingLookup(),
                        now)) {
            return Optional.empty();
        }
        request.pending.clear();
        return Optional.of(
                answer instanceof LookupResult.Hit hit
                        ? new Found(
                                blocks,
                                local,
                                UsableHit.of(hit, request, cache.blockTokens()),
                                hit.mode())
                        : new Found(blocks, local, UsableHit.nothing(""), LoadMode.SYNC));
    }

    /// A request was looked up, lacks blocks, and holds none. Those that were found for it may be
    /// free again, so what counts is how many more must become free.
    void blocked(RequestState request, long now) {
        request.blockedAt = cache.pool().version();
        request.blockedBelow = cache.pool().free() + request.blocksLacking;
        request.blockedSince = now;
    }

    /// Whether a request that lacked blocks need not be looked up yet. While no more blocks are
    /// free than at its last lookup it would be blocked again, unless more of its prefix has been
    /// cached since; so it is looked up again at intervals.
    boolean isStillBlocked(RequestState request, long now) {
        return request.blockedAt == cache.pool().version()
                || (request.blockedAt >= 0
                        && cache.pool().free() < request.blockedBelow
                        && now - request.blockedSince < BLOCKED_RETRY_NANOS);
    }

    /// A request was looked up, and waits for an encoder item at position `from`.
    void lacksItem(RequestState request, int from, long now) {
        request.itemFrom = from;
        request.itemSince = now;
    }

    /// Whether only the item at [RequestState#itemFrom] must be looked for. The prefix is looked up
    /// again at intervals, since it may cover the item by then.
    boolean awaitsItem(RequestState request, long now) {
        boolean awaits = request.itemFrom >= 0 && now - request.itemSince < BLOCKED_RETRY_NANOS;
        if (!awaits) {
            request.itemFrom = -1;
        }
        return awaits;
    }

    /// The reason why a request was not admitted no longer applies.
    static void reset(RequestState request) {
        request.pending.clear();
        request.blockedAt = -1;
        request.itemFrom = -1;
    }
}
