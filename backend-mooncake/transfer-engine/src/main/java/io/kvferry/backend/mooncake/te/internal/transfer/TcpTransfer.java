// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.tcp.BatchDataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.DataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.ProcessorRoom;
import io.kvferry.backend.mooncake.te.internal.tcp.Wire;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer.Lane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/// One attempt to run a transfer over the data connections of a peer: cut into slices, each slice
/// over one lane.
///
/// The calling thread works on slices like the helpers do, so that the transfer ends even if no
/// helper ever comes.
final class TcpTransfer implements DataClient.Job {
    private static final Logger LOG = LoggerFactory.getLogger(TcpTransfer.class);

    /// Below this a second connection costs more than it gains.
    private static final long SHARE_BYTES = 2 << 20;

    /// How long a peer is asked whether a failed WRITE has ended there.
    private static final Duration LONGEST_FENCE = Duration.ofSeconds(10);

    private static final long FENCE_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final EngineRequest request;
    private final TransferContext context;
    private final Peer peer;
    private final Cancellation opening;
    private final SliceRunner runner;
    private final ReentrantLock lock = new ReentrantLock();
    private final List<Wire> wires = new ArrayList<>(2);

    /// Stopped, and not known to have ended at the peer.
    private final List<Wire> stopped = new ArrayList<>(0);

    /// By slice: the token of an attempt to write that the peer has not acknowledged as a whole, 0
    /// for none. Each is used by the thread that has the slice.
    private final long[] unsettled;

    private volatile int failedRange = -1;
    private volatile boolean touched;
    private volatile @Nullable Wire fencing;

    /// Of the connections that [#awaitFence] opens, which belong to no lane and end by a close
    /// only: whoever has cancelled the transfer waits for what they tell.
    private volatile @Nullable Cancellation fences;

    /// @param opening of the connections that are being opened for lanes
    TcpTransfer(EngineRequest request, TransferContext context, Peer peer, Cancellation opening) {
        this.request = request;
        this.context = context;
        this.peer = peer;
        this.opening = opening;
        this.runner =
                new SliceRunner(
                        Slice.cut(request.ranges(), lanes()), context.config().spinMicros());
        this.unsettled = new long[runner.slices()];
    }

    private int lanes() {
        long shares = request.ranges().totalBytes() / SHARE_BYTES;
        return shares <= 1
                ? 1
                : Math.clamp(
                        shares, 1, context.config().mostLanes(ProcessorRoom.OF_PROCESS.lanes()));
    }

    /// @throws KvFerryException what ended it early
    void run() {
        runner.run(
                runner.slices(), context.helpers(), this::work, () -> giveUp(ErrorCode.CANCELLED));
    }

    private void work() {
        for (int slice = runner.claim(); slice >= 0; slice = runner.claim()) {
            try {
                carry(slice);
            } catch (KvFerryException e) {
                fail(e);
            } catch (RuntimeException | Error e) {
                // Errors too: a slice that did not run must not pass for one that did.
                fail(
                        new KvFerryException(
                                ErrorCode.INTERNAL,
                                "transfer with " + peer.segmentName + ": " + e,
                                e));
            }
        }
    }

    private void carry(int slice) {
        Lane lane = null;
        Wire wire = null;
        boolean healthy = false;
        try {
            lane = peer.borrow(request.deadline(), this, opening);
            wire = use(lane.wire);
            try {
                carry(lane, slice);
            } catch (IOException e) {
                if (!lane.used || wire.received() > 0 || wire.isExpired() || ended()) {
                    throw e;
                }
                if (write() && wire.hasSent() && !peer.batches()) {
                    throw e; // what was sent may be applied after a second attempt
                }
                // A kept connection that the peer closed meanwhile. Once, on a new one.
                forget(wire);
                Lane dead = lane;
                lane = null;
                lane = peer.replace(dead, request.deadline(), opening);
                wire = use(lane.wire);
                if (unsettled[slice] != 0) {
                    fence(lane, new long[] {unsettled[slice]});
                    unsettled[slice] = 0;
                }
                carry(lane, slice);
            }
            healthy = true;
        } catch (IOException e) {
            throw explain(e, wire);
        } finally {
            if (wire != null) {
                forget(wire);
            }
            if (lane != null) {
                if (keepStopped(lane.wire)) {
                    peer.letGo();
                } else {
                    peer.giveBack(lane, healthy);
                }
            }
        }
    }

    /// Keeps a connection that was stopped until [#awaitQuiet].
    private boolean keepStopped(Wire wire) {
        if (!wire.isStopped()) {
            return false;
        }
        lock.lock();
        try {
            stopped.add(wire);
        } finally {
            lock.unlock();
        }
        return true;
    }

    private void carry(Lane lane, int slice) throws IOException {
        DataClient client = lane.client(peer, context.regions());
        long token = write() && peer.batches() ? context.newToken() : 0;
        unsettled[slice] = token;
        try {
            client.run(lane.wire, runner.slice(slice), this, token);
            unsettled[slice] = 0;
        } finally {
            if (client.failedRange >= 0) {
                failedRange = client.failedRange;
            }
        }
    }

    private void fence(Lane lane, long[] tokens) throws IOException {
        if (lane.client(peer, context.regions()) instanceof BatchDataClient client) {
            client.fence(lane.wire, tokens);
        }
    }

    /// Called by the thread that ran it, after a failure: returns when the peer applies nothing of
    /// this transfer any more, or cannot be reached for so long that what it had is applied or
    /// lost.
    ///
    /// Peers without the extension cannot be asked. They close a connection whose output has ended
    /// when they have applied what came over it.
    void awaitQuiet() {
        if (stopped.isEmpty() && isSettled()) {
            return;
        }
        long[] tokens = Arrays.stream(unsettled).filter(token -> token != 0).toArray();
        boolean interrupted = Thread.interrupted(); // or no socket could be opened here
        try {
            stopped.forEach(this::awaitEnd);
            if (tokens.length > 0) {
                awaitFence(tokens);
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private boolean isSettled() {
        for (long token : unsettled) {
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
        }
    }

    private void awaitFence(long[] tokens) {
        var connecting = new Cancellation();
        fences = connecting; // before the look whether all of it is being closed
        Deadline limit = Deadline.in(LONGEST_FENCE);
        IOException last = null;
        while (!limit.passed() && !context.closing().getAsBoolean()) {
            try (Wire wire = peer.connect(limit, connecting)) {
                fencing = wire;
                if (context.closing().getAsBoolean()) {
                    return; // whoever closes has not seen this connection
                }
                wire.begin(limit);
                fence(new Lane(wire), tokens);
                return;
            } catch (ConnectException e) {
                LOG.debug("nobody listens at {} any more: {}", peer.segmentName, e.toString());
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

    private Wire use(Wire wire) throws IOException {
        wire.stoppable(write() && !peer.batches());
        wire.begin(request.deadline());
        touched = true;
        lock.lock();
        try {
            wires.add(wire);
        } finally {
            lock.unlock();
        }
        if (runner.givenUp() != null) {
            throw new ClosedChannelException();
        }
        return wire;
    }

    private void forget(Wire wire) {
        lock.lock();
        try {
            wires.remove(wire);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public boolean write() {
        return request.operation() == Operation.WRITE;
    }

    @Override
    public long capability() {
        return request.capability() != 0 ? request.capability() : request.memoryKey();
    }

    @Override
    public Wire connect() throws IOException {
        Wire wire = peer.connect(request.deadline(), opening);
        boolean usable = false;
        try {
            use(wire);
            usable = true;
            return wire;
        } finally {
            if (!usable) {
                disconnect(wire);
            }
        }
    }

    @Override
    public void disconnect(Wire wire) {
        forget(wire);
        if (!keepStopped(wire)) {
            wire.close();
        }
    }

    @Override
    public boolean ended() {
        return runner.ended();
    }

    private void fail(KvFerryException reason) {
        runner.fail(reason);
        peer.wakeWaiters();
    }

    void giveUp(ErrorCode reason) {
        runner.giveUp(reason);
        opening.cancel(reason);
        Wire fence = fencing;
        if (reason == ErrorCode.CLOSED && fence != null) {
            fence.abort();
        }
        Cancellation connecting = fences;
        if (reason == ErrorCode.CLOSED && connecting != null) {
            connecting.cancel(reason);
        }
        boolean atOnce = context.closing().getAsBoolean();
        lock.lock();
        try {
            wires.forEach(atOnce ? Wire::abort : Wire::stop);
            if (atOnce) {
                stopped.forEach(Wire::abort);
            }
        } finally {
            lock.unlock();
        }
        peer.wakeWaiters();
    }

    /// Whether no connection was ever had, so that the peer has seen nothing of this transfer.
    boolean untouched() {
        return !touched;
    }

    int failedRange() {
        return failedRange;
    }

    private KvFerryException explain(IOException cause, @Nullable Wire wire) {
        String what =
                "%s of %d bytes in %d ranges, peer %s: "
                        .formatted(
                                request.operation(),
                                request.ranges().totalBytes(),
                                request.ranges().size(),
                                peer.segmentName);
        ErrorCode reason = runner.givenUp();
        if (reason != null) {
            return new KvFerryException(reason, what + "given up", cause);
        }
        if (Thread.currentThread().isInterrupted()) { // which closes the socket it waits in
            return new KvFerryException(ErrorCode.CANCELLED, what + "interrupted", cause);
        }
        if (cause instanceof SocketTimeoutException || wire != null && wire.isExpired()) {
            String which =
                    request.deadline().passed()
                            ? "the deadline passed"
                            : "no progress for the stall timeout";
            return new KvFerryException(ErrorCode.TIMEOUT, what + which, cause);
        }
        return new KvFerryException(
                lost(cause) ? ErrorCode.PEER_LOST : ErrorCode.IO, what + cause, cause);
    }

    private static boolean lost(IOException cause) {
        String text = String.valueOf(cause.getMessage()).toLowerCase(Locale.ROOT);
        return cause instanceof EOFException
                || cause instanceof ConnectException
                || cause instanceof NoRouteToHostException
                || cause instanceof UnknownHostException
                || cause instanceof ClosedChannelException
                || text.contains("reset")
                || text.contains("broken pipe");
    }
}
