// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.RequestBlocks;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;

/// Requests that only stale holds keep from running: those of ended requests whose blocks nobody
/// has fetched for longer than a patience. A hold may last for minutes, and whoever waits for its
/// blocks with it. Such a request is refused instead, before anything is computed for it: a router
/// has the decode instance compute the prompt, a client may try another instance.
///
/// A request that needs what running requests or younger holds have waits on, since they end by
/// themselves soon. So does one that has got a token: it was running before.
///
/// Threading: scheduler thread only.
final class StaleHolds {
    /// A request is looked at again after this time: counting blocks takes time.
    private static final long LOOK_NANOS = 10_000_000;

    private static final long WARN_NANOS = 10_000_000_000L;

    private final Duration patience;
    private final KvTransfers transfers;
    private final KvCache cache;
    private final Telemetry telemetry;
    private List<Refused> refused = new ArrayList<>();
    private long warnedAt = System.nanoTime() - WARN_NANOS;
    private long unsaid;

    /// A request that is to fail.
    record Refused(RequestState request, Failure why) {}

    /// @param patience after which a hold is stale
    StaleHolds(Duration patience, KvTransfers transfers, KvCache cache, Telemetry telemetry) {
        this.patience = patience;
        this.transfers = transfers;
        this.cache = cache;
        this.telemetry = telemetry;
    }

    /// Refuses a request that lacks blocks, if it would have them but for stale holds.
    ///
    /// @param needed free blocks with which it could run
    /// @return whether it is refused: nobody behind it waits for it
    boolean refuses(RequestState request, long needed, long now) {
        if (request.generatedCount() > 0 || now - request.heldLookAt < LOOK_NANOS) {
            return false;
        }
        request.heldLookAt = now;
        long lacking = needed - cache.pool().free();
        var stale = transfers.holdsOlderThan(patience.toNanos(), now);
        long most =
                stale.stream().mapToLong(blocks -> (long) blocks.count() * cache.groups()).sum();
        long held = most < lacking ? 0 : keptBy(stale);
        long own = (long) request.blocks.count() * cache.groups();
        boolean fitsLater = needed <= cache.pool().total() - held - own; // when others have ended
        if (held == 0 || held < lacking || fitsLater) {
            return false;
        }
        refuse(request, held);
        return true;
    }

    /// Blocks that would be free without these holds; several of them may share a prefix, and
    /// running requests too.
    private long keptBy(List<RequestBlocks> holds) {
        var references = new HashMap<Integer, Integer>();
        for (var blocks : holds) {
            for (int group = 0; group < blocks.groups(); group++) {
                for (int position = 0; position < blocks.count(); position++) {
                    references.merge(blocks.block(group, position), 1, Integer::sum);
                }
            }
        }
        return references.entrySet().stream()
                .filter(entry -> cache.pool().references(entry.getKey()) == entry.getValue())
                .count();
    }

    private void refuse(RequestState request, long held) {
        var what =
                "no room: %d of %d blocks are held for decode instances, which have not fetched them for more than %d ms; try again later"
                        .formatted(held, cache.pool().total(), patience.toMillis());
        refused.add(new Refused(request, new Failure(ErrorCode.BACKPRESSURE, what)));
        telemetry.metrics().count(Counter.REQUESTS_KEPT_OUT_BY_HOLDS);
        long now = System.nanoTime();
        if (now - warnedAt < WARN_NANOS) {
            unsaid++;
            return;
        }
        warnedAt = now;
        telemetry.incident(
                request.id,
                "refusal",
                "engine",
                what + (unsaid == 0 ? "" : " (and " + unsaid + " requests before)"));
        unsaid = 0;
    }

    /// Those that were refused since the last call.
    List<Refused> take() {
        if (refused.isEmpty()) {
            return List.of();
        }
        var taken = refused;
        refused = new ArrayList<>();
        return taken;
    }
}
