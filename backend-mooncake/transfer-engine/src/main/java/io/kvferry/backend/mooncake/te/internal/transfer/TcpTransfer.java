// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.tcp.DataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.ProcessorRoom;
import io.kvferry.backend.mooncake.te.internal.tcp.Wire;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer.Lane;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;

import java.io.EOFException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.locks.ReentrantLock;

/// One attempt to run a transfer over the data connections of a peer: cut into slices, each slice
/// over one lane.
///
/// The calling thread works on slices like the helpers do, so that the transfer ends even if no
/// helper ever comes.
final class TcpTransfer implements DataClient.Job {
    /// Below this a second connection costs more than it gains.
    private static final long SHARE_BYTES = 2 << 20;

    private final EngineRequest request;
    private final TransferContext context;
    private final Peer peer;
    private final Cancellation opening;
    private final SliceRunner runner;
    private final ReentrantLock lock = new ReentrantLock();
    private final List<Wire> wires = new ArrayList<>(2);
    private final UnsettledWrites unsettled;

    private volatile int failedRange = -1;
    private volatile boolean touched;

    /// @param opening of the connections that are being opened for lanes
    TcpTransfer(EngineRequest request, TransferContext context, Peer peer, Cancellation opening) {
        this.request = request;
        this.context = context;
        this.peer = peer;
        this.opening = opening;
        this.runner =
                new SliceRunner(
                        Slice.cut(request.ranges(), lanes()), context.config().spinMicros());
        this.unsettled = new UnsettledWrites(peer, context, runner.slices());
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
                unsettled.end(slice, lane);
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
                if (unsettled.keep(lane.wire)) {
                    peer.letGo();
                } else {
                    peer.giveBack(lane, healthy);
                }
            }
        }
    }

    private void carry(Lane lane, int slice) throws IOException {
        DataClient client = lane.client(peer, context.regions());
        long token = unsettled.begin(slice, write() && peer.batches());
        try {
            client.run(lane.wire, runner.slice(slice), this, token);
            unsettled.settled(slice);
        } finally {
            if (client.failedRange >= 0) {
                failedRange = client.failedRange;
            }
        }
    }

    /// See [UnsettledWrites#awaitQuiet]. Called by the thread that ran it.
    void awaitQuiet() {
        unsettled.awaitQuiet();
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
        if (!unsettled.keep(wire)) {
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
        boolean atOnce = context.closing().getAsBoolean();
        lock.lock();
        try {
            wires.forEach(atOnce ? Wire::abort : Wire::stop);
        } finally {
            lock.unlock();
        }
        unsettled.giveUp(reason);
        peer.wakeWaiters();
    }

    /// Whether no connection was ever obtained, so the peer's memory is unchanged by this transfer.
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
