// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.internal.tcp.BatchDataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.Wire;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer.Lane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.ConnectException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// What the peer may still apply of a transfer: attempts to write that it has not acknowledged, and
/// stopped connections that have not ended there. Both are left over only where it failed.
///
/// Threading: an attempt belongs to the thread that has its slice; [#keep] and [#giveUp] are for
/// any, [#awaitQuiet] for the thread that ran the transfer, after all slices.
final class UnsettledWrites {
    private static final Logger LOG = LoggerFactory.getLogger(UnsettledWrites.class);

    /// How long a peer is asked whether a failed WRITE has ended there.
    private static final Duration LONGEST_FENCE = Duration.ofSeconds(10);

    private static final long FENCE_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final Peer peer;
    private final TransferContext context;

    /// By slice: the token of an attempt that the peer has not acknowledged as a whole, 0 for none.
    private final long[] tokens;

    /// The last one, and by [Wire#nextStopped] the others; guarded by this object's monitor. Most
    /// transfers have none.
    private @Nullable Wire stopped;

    private volatile @Nullable Wire fencing;

    /// Of the connections that [#awaitFence] opens, which belong to no lane and end by a close
    /// only: whoever has cancelled the transfer waits for what they tell.
    private volatile @Nullable Cancellation connecting;

    UnsettledWrites(Peer peer, TransferContext context, int slices) {
        this.peer = peer;
        this.context = context;
        this.tokens = new long[slices];
    }

    /// An attempt begins.
    ///
    /// @param named whether the peer knows attempts by their tokens
    /// @return its token, 0 where it has none
    long begin(int slice, boolean named) {
        long token = named ? peer.newToken() : 0;
        tokens[slice] = token;
        return token;
    }

    /// The attempt has been acknowledged.
    void settled(int slice) {
        tokens[slice] = 0;
    }

    /// Before another attempt: the last one ends at the peer.
    ///
    /// @param lane which carries the next
    void end(int slice, Lane lane) throws IOException {
        if (tokens[slice] != 0) {
            fence(lane, new long[] {tokens[slice]});
            tokens[slice] = 0;
        }
    }

    private void fence(Lane lane, long[] which) throws IOException {
        if (lane.client(peer, context.regions()) instanceof BatchDataClient client) {
            client.fence(lane.wire, which);
        }
    }

    /// Keeps a connection that was stopped until [#awaitQuiet]; false for any other.
    boolean keep(Wire wire) {
        if (!wire.isStopped()) {
            return false;
        }
        synchronized (this) {
            wire.nextStopped = stopped;
            stopped = wire;
        }
        if (context.closing().getAsBoolean()) {
            wire.abort(); // whoever closes may not have seen it
        }
        return true;
    }

    /// Called after the transfer. Returns once the peer applies nothing of this transfer any more,
    /// or has been unreachable for so long that everything sent is applied or lost.
    ///
    /// Peers without the extension cannot be asked. After the end of the stream they apply what
    /// came over the connection and then close it.
    void awaitQuiet() {
        Wire ending = lastStopped();
        if (ending == null && areAllAcknowledged()) {
            return;
        }
        boolean interrupted = Thread.interrupted(); // or no socket could be opened here
        try {
            for (Wire wire = ending; wire != null; wire = wire.nextStopped) {
                awaitEnd(wire);
            }
            if (!areAllAcknowledged()) {
                awaitFence();
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private boolean areAllAcknowledged() {
        for (long token : tokens) {
            if (token != 0) {
                return false;
            }
        }
        return true;
    }

    private void awaitEnd(Wire wire) {
        try (wire) {
            if (!wire.awaitEnd() && !context.closing().getAsBoolean()) {
                LOG.warn(
                        "peer {} has not closed the connection of a WRITE that failed; it may"
                                + " still apply what it has of it",
                        peer.segmentName);
            }
        } catch (RuntimeException | Error e) { // such as no memory; others are still to be ended
            LoopReport.WARN.log(LOG, "the end of a stopped connection was not awaited", e);
        }
    }

    /// Where memory is short, the peer is asked again.
    private void awaitFence() {
        long began = System.nanoTime();
        boolean asked = false;
        while (!asked && System.nanoTime() - began < LONGEST_FENCE.toNanos()) {
            try {
                fenceInTime();
                asked = true;
            } catch (OutOfMemoryError _) {
                LockSupport.parkNanos(FENCE_AGAIN_NANOS);
            }
        }
    }

    private void fenceInTime() {
        var opening = new Cancellation();
        connecting = opening; // before the look whether all of it is being closed
        Deadline limit = Deadline.in(LONGEST_FENCE);
        IOException last = null;
        while (!limit.passed() && !context.closing().getAsBoolean()) {
            try (Wire wire = peer.connect(limit, opening)) {
                fencing = wire;
                if (context.closing().getAsBoolean()) {
                    return; // whoever closes has not seen this connection
                }
                wire.begin(limit);
                fence(new Lane(wire), tokens);
                return;
            } catch (ConnectException e) {
                LOG.debug("{} no longer has a listener: {}", peer.segmentName, e.toString());
                return;
            } catch (KvFerryException e) {
                if (e.code() != ErrorCode.STALE_INCARNATION && e.code() != ErrorCode.CLOSED) {
                    LOG.warn("a failed WRITE may not have ended yet: {}", e.getMessage());
                }
                return;
            } catch (IOException e) {
                last = e;
                LockSupport.parkNanos(FENCE_AGAIN_NANOS);
            } finally {
                fencing = null;
            }
        }
        LOG.warn(
                "peer {} could not be asked whether a failed WRITE has ended: {}",
                peer.segmentName,
                String.valueOf(last));
    }

    /// Only a close ends what the peer is asked.
    void giveUp(ErrorCode reason) {
        Wire asking = fencing;
        if (reason == ErrorCode.CLOSED && asking != null) {
            asking.abort();
        }
        Cancellation opening = connecting;
        if (reason == ErrorCode.CLOSED && opening != null) {
            opening.cancel(reason);
        }
        if (context.closing().getAsBoolean()) {
            for (Wire wire = lastStopped(); wire != null; wire = wire.nextStopped) {
                wire.abort();
            }
        }
    }

    private synchronized @Nullable Wire lastStopped() {
        return stopped;
    }
}
