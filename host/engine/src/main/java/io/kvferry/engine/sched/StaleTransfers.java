// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Requests that only stale transfers keep from running: those that keep their blocks for longer
/// than a patience and of which nobody knows when they end. Whoever waits for such blocks fails
/// instead:
///
/// | whose blocks it lacks | may take | it fails with |
/// |---|---|---|
/// | holds of ended requests that nobody has fetched | minutes | BACKPRESSURE, unless it has a token: it was running before |
/// | transfers whose revocation a rank has not answered within the limit | for ever | TIMEOUT |
///
/// A request that needs what running requests or younger transfers have waits on, since they end by
/// themselves soon. One that is refused for holds is so before anything is computed for it: a
/// router has the decode instance compute the prompt, a client may try another instance. Rows of
/// encoder items are dealt with in [io.kvferry.engine.encoder.EncoderScheduler], without the
/// patience.
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

    /// Whether a request that lacks blocks is to be looked up anew before it is refused: what it
    /// needs changes with the prefix cache.
    boolean mayRefuse(RequestState request, long now) {
        return isDue(request, now) && !transfers.stale(patience.toNanos(), now).isEmpty();
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
        var stale = transfers.stale(patience.toNanos(), now);
        if (stale.isEmpty()) {
            return false;
        }
        var lost = stale.stream().filter(Transfer::isUnanswered).toList();
        return waitsForEver(request, needed, lost) || waitsForHolds(request, needed, stale);
    }

    private boolean waitsForEver(RequestState request, long needed, List<Transfer> lost) {
        int kept = transfers.keptBy(lost);
        if (kept == 0 || fitsLater(request, needed, kept)) {
            return false;
        }
        refuse(
                request,
                ErrorCode.TIMEOUT,
                "no room: %d of %d blocks are out of use, because transfers were revoked and not every rank has answered"
                        .formatted(kept, cache.pool().total()));
        return true;
    }

    private boolean waitsForHolds(RequestState request, long needed, List<Transfer> stale) {
        if (request.generatedCount() > 0) {
            return false;
        }
        long lacking = needed - cache.pool().free();
        long most = stale.stream().mapToLong(Transfer::blocks).sum();
        int kept = most < lacking ? 0 : transfers.keptBy(stale);
        if (kept == 0 || kept < lacking || fitsLater(request, needed, kept)) {
            return false;
        }
        telemetry.metrics().count(Counter.REQUESTS_KEPT_OUT_BY_HOLDS);
        refuse(
                request,
                ErrorCode.BACKPRESSURE,
                "no room: %d of %d blocks are held for decode instances, which have not fetched them for more than %d ms; try again later"
                        .formatted(kept, cache.pool().total(), patience.toMillis()));
        return true;
    }

    /// Whether it fits when all others but these have ended.
    private boolean fitsLater(RequestState request, long needed, int kept) {
        long own = (long) request.blocks.count() * cache.groups();
        return needed <= cache.pool().total() - kept - own;
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
