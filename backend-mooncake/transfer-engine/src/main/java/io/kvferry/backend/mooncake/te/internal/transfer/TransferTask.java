// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Guarantee;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.GateSet;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.UseGate;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ThreadLocalRandom;

/// One transfer from submit to outcome: holds the local regions, finds the peer, chooses the path,
/// runs it.
///
/// Threading: [#run] once, in any thread; the rest from any. Once [#outcome] has completed, no
/// thread of this engine touches the local ranges any more; once [#quiesced] has, this transfer no
/// longer changes the peer's memory.
public final class TransferTask implements EngineTransfer, Runnable, Holders.Holder {
    private static final Logger LOG = LoggerFactory.getLogger(TransferTask.class);
    private static final GateSet NONE = new GateSet();

    private static final Failed NO_MEMORY =
            new Failed(
                    new Failure(ErrorCode.NO_MEMORY, "no heap memory to run a transfer with"), -1);

    private final EngineRequest request;
    private final TransferContext context;
    private final Ranges ranges;
    private volatile GateSet held = NONE;
    private final CompletableFuture<EngineOutcome> outcome = new CompletableFuture<>();
    private final CompletableFuture<Void> quiet = new CompletableFuture<>();
    private final Cancellation waits = new Cancellation();
    private volatile @Nullable ErrorCode givenUp;
    private volatile @Nullable TcpTransfer tcp;
    private volatile @Nullable SameHostTransfer sameHost;
    private int failedRange = -1;

    /// Hash code by identity. The JVM's own costs a call into it for each new object.
    private final int hash = ThreadLocalRandom.current().nextInt();

    public TransferTask(EngineRequest request, TransferContext context) {
        this.request = request;
        this.context = context;
        this.ranges = request.ranges();
    }

    @Override
    public void run() {
        EngineOutcome how = NO_MEMORY;
        try {
            context.holders().begin(this);
            how = attempt();
        } catch (OutOfMemoryError _) {
            how = NO_MEMORY; // not even a failure could be made
        } finally {
            end(how);
        }
    }

    private void end(EngineOutcome how) {
        try {
            outcome.complete(how);
        } finally { // a dependent stage may throw an OutOfMemoryError
            awaitQuiet();
            context.holders().end(this);
            quiet.complete(null);
        }
    }

    /// Runs the transfer in this thread, and returns when it is quiet on both sides.
    public EngineOutcome execute() {
        run();
        return outcome.join();
    }

    /// Throws only if there is no memory to create a failure.
    private EngineOutcome attempt() {
        held = context.gateSets().take();
        try {
            checkOpen();
            holdLocal();
            Completed done =
                    ranges.totalBytes() == 0 ? new Completed(0, Guarantee.APPLIED, "none") : move();
            if (request.notification().isPresent()) {
                context.notifier()
                        .send(
                                request.segmentName(),
                                request.notification().get(),
                                request.deadline(),
                                waits);
            }
            return done;
        } catch (KvFerryException e) {
            return new Failed(Failure.of(e), failedRange);
        } catch (RuntimeException | Error e) {
            // Errors too, such as no memory left for a connection: the outcome must be completed.
            return new Failed(Failure.of(e), failedRange);
        } finally {
            GateSet used = held;
            used.exitAll();
            held = NONE; // another transfer uses it from now on
            context.gateSets().give(used);
        }
    }

    private void awaitQuiet() {
        TcpTransfer last = tcp;
        if (last != null) {
            try {
                last.awaitQuiet();
            } catch (RuntimeException | Error e) {
                LoopReport.WARN.log(LOG, "the end of a failed WRITE could not be awaited", e);
            }
        }
    }

    /// Whether it would fail at once if it ran now.
    boolean isOver() {
        return givenUp != null || request.deadline().passed();
    }

    /// Ends a transfer that never ran.
    void fail(ErrorCode code, String message) {
        Failed end;
        try {
            end = new Failed(new Failure(code, message), -1);
        } catch (OutOfMemoryError e) { // those that wait behind it must have their turn
            end = NO_MEMORY;
        }
        try {
            outcome.complete(end);
        } finally {
            quiet.complete(null);
        }
    }

    private void holdLocal() {
        for (int i = 0; i < ranges.size(); i++) {
            long bytes = ranges.bytes(i);
            if (bytes != 0) {
                Region region = context.regions().find(ranges.localAddress(i), bytes);
                if (region == null || !held.enter(region.gate)) {
                    failedRange = i;
                    throw new KvFerryException(
                            ErrorCode.INVALID_REQUEST,
                            "range %d: local 0x%x+%d is not inside one registered region"
                                    .formatted(i, ranges.localAddress(i), bytes));
                }
            }
        }
    }

    private Completed move() {
        if (context.own(request.segmentName())) {
            copyLocally();
            return new Completed(ranges.totalBytes(), Guarantee.APPLIED, "local");
        }
        Peer peer = current();
        try {
            return over(peer);
        } catch (KvFerryException e) {
            learnFrom(e.code(), peer);
            boolean refused = e.code() == ErrorCode.STALE_INCARNATION;
            boolean again = refused || e.code() == ErrorCode.PEER_LOST && untouched();
            if (!again || givenUp != null) {
                throw e;
            }
        }
        // Nothing reached the peer, which may have restarted on other ports: look it up again.
        failedRange = -1;
        if (!peer.isDropped()) {
            context.peers().lookUpAgain(peer, request.deadline(), waits);
        }
        Peer next = current();
        try {
            return over(next);
        } catch (KvFerryException e) {
            learnFrom(e.code(), next);
            throw e;
        }
    }

    /// Updates the peer table after a failure. The peer's data port may now belong to another
    /// engine, to another program, or not answer.
    private void learnFrom(ErrorCode code, Peer peer) {
        switch (code) {
            case STALE_INCARNATION -> context.peers().drop(peer);
            case PEER_LOST -> context.peers().connectionLost(peer);
            case PROTOCOL, PEER_REFUSED, TIMEOUT -> context.peers().lookUpAgainSoon(peer);
            default -> {}
        }
    }

    /// Whether no byte of this transfer can have reached the peer.
    private boolean untouched() {
        TcpTransfer overTcp = tcp;
        SameHostTransfer copied = sameHost;
        return (overTcp != null || copied != null)
                && (overTcp == null || overTcp.untouched())
                && (copied == null || copied.untouched());
    }

    /// The shortest way to the peer that can carry all of the transfer.
    private Completed over(Peer peer) {
        if (peer.shared().isPresent()) {
            Optional<String> way = onThisHost(peer.shared().get());
            if (way.isPresent()) {
                return new Completed(ranges.totalBytes(), Guarantee.APPLIED, way.get());
            }
        }
        return overTcp(peer);
    }

    private Optional<String> onThisHost(SharedPeer shared) {
        var transfer = new SameHostTransfer(request, context, shared);
        sameHost = transfer;
        ErrorCode reason = givenUp;
        if (reason != null) {
            transfer.giveUp(reason);
        }
        Optional<String> way = Optional.empty();
        try {
            way = transfer.run();
            return way;
        } finally {
            failedRange = way.isPresent() ? -1 : transfer.failedRange();
        }
    }

    private Peer current() {
        Peer peer = context.peers().find(request.segmentName(), request.deadline(), waits);
        String expected = request.expectedIncarnation();
        if (!expected.isEmpty() && !peer.incarnation().equals(expected)) {
            // Either side may be outdated. If it is the request, other transfers keep using the
            // peer.
            context.peers().lookUpAgain(peer, request.deadline(), waits);
            peer = context.peers().find(request.segmentName(), request.deadline(), waits);
        }
        if (!expected.isEmpty() && !peer.incarnation().equals(expected)) {
            throw new KvFerryException(
                    ErrorCode.STALE_INCARNATION,
                    "peer %s is incarnation '%s' now; the addresses belong to '%s'"
                            .formatted(request.segmentName(), peer.incarnation(), expected));
        }
        if (request.capability() != 0 && !peer.batches()) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "peer "
                            + request.segmentName()
                            + " knows no capabilities; it is not a kvferry peer");
        }
        return peer;
    }

    private Completed overTcp(Peer peer) {
        var transfer = new TcpTransfer(request, context, peer, waits);
        tcp = transfer;
        ErrorCode reason = givenUp;
        if (reason != null) {
            transfer.giveUp(reason);
        }
        try {
            transfer.run();
        } finally {
            failedRange = transfer.failedRange();
        }
        boolean applied =
                request.operation() == Operation.READ || peer.batches() || peer.receipts();
        return new Completed(
                ranges.totalBytes(), applied ? Guarantee.APPLIED : Guarantee.SENT, "tcp");
    }

    private void copyLocally() {
        var copy = new LocalCopy(request, context, held);
        try {
            copy.run(this::checkOpen);
        } finally {
            failedRange = copy.failedRange();
        }
    }

    private void checkOpen() {
        ErrorCode reason = givenUp;
        if (reason != null) {
            throw new KvFerryException(reason, "the transfer was given up");
        }
        if (request.deadline().passed()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "the deadline of the transfer has passed");
        }
    }

    void giveUp(ErrorCode reason) {
        givenUp = reason;
        TcpTransfer running = tcp;
        if (running != null) {
            running.giveUp(reason);
        }
        SameHostTransfer copying = sameHost;
        if (copying != null) {
            copying.giveUp(reason);
        }
        waits.cancel(reason);
    }

    @Override
    public CompletionStage<EngineOutcome> outcome() {
        return outcome.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiet.minimalCompletionStage();
    }

    @Override
    public void cancel() {
        giveUp(ErrorCode.CANCELLED);
    }

    @Override
    public boolean holds(UseGate gate) {
        return held.holds(gate);
    }

    @Override
    public void abort() {
        giveUp(ErrorCode.CLOSED);
    }

    @Override
    public int hashCode() {
        return hash;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return this == other;
    }
}
