// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Requests that are blocked only by stale transfers, which have been open for longer than the
/// patience and may not end soon. A request that needs their blocks fails:
///
/// | whose blocks it lacks | may take | it fails with |
/// |---|---|---|
/// | unfetched holds of ended requests | minutes | BACKPRESSURE, unless it has a token |
/// | transfers whose revocation a rank has not answered within the limit | for ever | TIMEOUT |
///
/// A request that needs blocks of running requests or younger transfers keeps waiting, since these
/// end soon. A request is refused for holds only before its first token, and mostly before anything
/// is computed for it (a long prompt may lack blocks in the middle). A router then has the decode
/// instance compute the prompt; a client may try another instance. Rows of encoder items are
/// handled in [io.kvferry.engine.encoder.EncoderScheduler], without the patience.
///
/// Threading: scheduler thread only.
final class StaleTransfers {
    /// A request is looked at again after this time: counting blocks takes time.
    private static final long LOOK_NANOS = 10_000_000;

    private static final long WARN_NANOS = 10_000_000_000L;

    private final Duration patience;
    private final KvTransfers transfers;
    private final KvCache cache;
    private final Telemetry telemetry;
    private @Nullable Kept stale;
    private @Nullable Kept lost;
    private List<Refused> refused = new ArrayList<>();
    private long warnedAt = System.nanoTime() - WARN_NANOS;
    private long unsaid;

    /// A request that is to fail.
    record Refused(RequestState request, Failure why) {}

    /// @param patience after which a transfer is stale
    StaleTransfers(Duration patience, KvTransfers transfers, KvCache cache, Telemetry telemetry) {
        this.patience = patience;
        this.transfers = transfers;
        this.cache = cache;
        this.telemetry = telemetry;
    }

    /// What some transfers keep, in the step that is being planned.
    private final class Kept {
        private final List<Transfer> by;

        /// No fewer than they keep: several may have the same blocks, and running requests too.
        final long atMost;

        private int counted = -1;

        Kept(List<Transfer> by) {
            this.by = by;
            this.atMost = by.stream().mapToLong(Transfer::blocks).sum();
        }

        int blocks() {
            if (counted < 0) {
                counted = transfers.keptBy(by);
            }
            return counted;
        }

        /// Whether the request fits when all others but these have ended.
        boolean leavesRoom(RequestState request, long needed) {
            long room = cache.pool().total() - (long) request.blocks.count() * cache.groups();
            return needed <= room - atMost || needed <= room - blocks();
        }
    }

    /// Starts the planning of a step.
    void beginStep() {
        stale = null;
        lost = null;
    }

    private Kept stale(long now) {
        if (stale == null) {
            stale = new Kept(transfers.stale(patience.toNanos(), now));
        }
        return stale;
    }

    private Kept lost(long now) {
        if (lost == null) {
            lost = new Kept(stale(now).by.stream().filter(Transfer::isUnanswered).toList());
        }
        return lost;
    }

    /// Whether a request that lacks blocks must be looked up again before it is refused, since its
    /// needs change with the prefix cache.
    boolean mayRefuse(RequestState request, long now) {
        return isDue(request, now) && stale(now).atMost > 0;
    }

    private static boolean isDue(RequestState request, long now) {
        return now - request.staleLookAt >= LOOK_NANOS;
    }

    /// Refuses a request that lacks blocks, if it would have them but for stale transfers.
    ///
    /// @param needed free blocks with which it could run when all others have ended
    /// @return whether it is refused: nobody behind it waits for it
    boolean refuses(RequestState request, long needed, long now) {
        if (!isDue(request, now)) {
            return false;
        }
        request.staleLookAt = now;
        return waitsForEver(request, needed, now) || waitsForHolds(request, needed, now);
    }

    private boolean waitsForEver(RequestState request, long needed, long now) {
        var kept = lost(now);
        if (kept.atMost == 0 || kept.leavesRoom(request, needed) || kept.blocks() == 0) {
            return false;
        }
        refuse(
                request,
                ErrorCode.TIMEOUT,
                "no room: %d of %d blocks are out of use, because transfers were revoked and not every rank has answered"
                        .formatted(kept.blocks(), cache.pool().total()));
        return true;
    }

    private boolean waitsForHolds(RequestState request, long needed, long now) {
        var kept = stale(now);
        long lacking = Math.max(1, needed - cache.pool().free());
        if (request.generatedCount() > 0
                || kept.atMost < lacking
                || kept.leavesRoom(request, needed)
                || kept.blocks() < lacking) {
            return false;
        }
        telemetry.metrics().count(Counter.REQUESTS_KEPT_OUT_BY_HOLDS);
        refuse(
                request,
                ErrorCode.BACKPRESSURE,
                "no room: %d of %d blocks are held for decode instances, which have not fetched them for more than %d ms%s; try again later"
                        .formatted(
                                kept.blocks(),
                                cache.pool().total(),
                                patience.toMillis(),
                                lost(now).atMost == 0
                                        ? ""
                                        : ", or were revoked and not every rank has answered"));
        return true;
    }

    private void refuse(RequestState request, ErrorCode code, String what) {
        refused.add(new Refused(request, new Failure(code, what)));
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
