// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Peer.Lane;
import io.kvferry.backend.mooncake.te.TransferRequest.Operation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.EOFException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.ClosedChannelException;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;

/// One attempt to run a transfer over the data connections of a peer: cut into shares, each share
/// over one lane.
///
/// The calling thread works on shares like the helpers do, so that the transfer ends even if no
/// helper ever comes.
final class TcpTransfer {
    /// Below this a second connection costs more than it gains.
    private static final long SHARE_BYTES = 512 << 10;

    private final TransferRequest request;
    private final TransferContext context;
    private final Peer peer;
    private final Share[] shares;
    private final AtomicInteger nextShare = new AtomicInteger();
    private final CountDownLatch open;
    private final Set<Wire> wires = ConcurrentHashMap.newKeySet();
    private volatile @Nullable KvFerryException failure;
    private volatile @Nullable ErrorCode givenUp;
    private volatile int failedRange = -1;
    private volatile boolean touched;

    TcpTransfer(TransferRequest request, TransferContext context, Peer peer) {
        this.request = request;
        this.context = context;
        this.peer = peer;
        int most =
                Math.min(
                        context.config().lanesPerPeer(),
                        Runtime.getRuntime().availableProcessors());
        long total = request.ranges().totalBytes();
        this.shares = Share.cut(request.ranges(), Math.clamp(total / SHARE_BYTES, 1, most));
        this.open = new CountDownLatch(shares.length);
    }

    /// @throws KvFerryException what ended it early
    void run() {
        for (int i = 1; i < shares.length; i++) {
            try {
                context.helpers().execute(this::work);
            } catch (RejectedExecutionException e) {
                break;
            }
        }
        work();
        awaitHelpers();
        KvFerryException ended = failure;
        if (ended != null) {
            throw ended;
        }
        ErrorCode reason = givenUp;
        if (reason != null) {
            // Shares may have been skipped.
            throw new KvFerryException(
                    reason, "the transfer with " + peer.segmentName + " was given up");
        }
    }

    /// Every claimed share is in the hands of a thread that has a deadline, so this ends soon after
    /// the deadline.
    private void awaitHelpers() {
        boolean interrupted = false;
        while (open.getCount() > 0) {
            try {
                open.await();
            } catch (InterruptedException e) {
                interrupted = true;
                giveUp(ErrorCode.CANCELLED);
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void work() {
        for (int i = nextShare.getAndIncrement();
                i < shares.length;
                i = nextShare.getAndIncrement()) {
            try {
                if (!ended()) {
                    carry(shares[i]);
                }
            } catch (KvFerryException e) {
                fail(e);
            } catch (RuntimeException e) {
                fail(
                        new KvFerryException(
                                ErrorCode.INTERNAL,
                                "transfer with " + peer.segmentName + ": " + e,
                                e));
            } finally {
                open.countDown();
            }
        }
    }

    private void carry(Share share) {
        Lane lane = null;
        Wire wire = null;
        boolean healthy = false;
        Exchange exchange = exchange(share);
        try {
            lane = peer.borrow(request.deadline());
            wire = use(lane);
            try {
                exchange.run(wire);
            } catch (IOException e) {
                if (!lane.used || wire.received() > 0 || wire.isExpired() || ended()) {
                    throw e;
                }
                // A kept connection that the peer closed meanwhile. Once, on a new one.
                wires.remove(wire);
                Lane dead = lane;
                lane = null;
                lane = peer.replace(dead, request.deadline());
                wire = use(lane);
                exchange = exchange(share);
                exchange.run(wire);
            }
            healthy = true;
        } catch (IOException e) {
            throw explain(e, wire);
        } finally {
            failedRange = exchange.failedRange >= 0 ? exchange.failedRange : failedRange;
            if (wire != null) {
                wires.remove(wire);
            }
            if (lane != null) {
                peer.giveBack(lane, healthy);
            }
        }
    }

    private Wire use(Lane lane) throws IOException {
        lane.wire.begin(request.deadline());
        touched = true;
        wires.add(lane.wire);
        if (givenUp != null) {
            throw new ClosedChannelException();
        }
        return lane.wire;
    }

    private Exchange exchange(Share share) {
        boolean write = request.operation() == Operation.WRITE;
        if (peer.batches()) {
            return new BatchExchange(
                    context.regions(),
                    share,
                    write,
                    peer.segmentName,
                    this::ended,
                    Incarnation.shortForm(peer.incarnation()),
                    request.capability(),
                    context.config().checksum());
        }
        return peer.receipts()
                ? new Exchange(context.regions(), share, write, peer.segmentName, this::ended)
                : new PlainExchange(
                        context.regions(),
                        share,
                        write,
                        peer,
                        this::ended,
                        this::connect,
                        request.deadline());
    }

    private Wire connect(Deadline deadline) throws IOException {
        Wire wire = peer.connect(deadline);
        wires.add(wire);
        return wire;
    }

    private boolean ended() {
        return failure != null || givenUp != null;
    }

    private synchronized void fail(KvFerryException reason) {
        if (failure == null) {
            failure = reason;
        }
    }

    void giveUp(ErrorCode reason) {
        givenUp = reason;
        for (Wire wire : wires) {
            wire.abort();
        }
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
        ErrorCode reason = givenUp;
        if (reason != null) {
            return new KvFerryException(reason, what + "given up", cause);
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
