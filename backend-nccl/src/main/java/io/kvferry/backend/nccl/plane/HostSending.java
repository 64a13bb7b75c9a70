// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.crossmemory.PeerProcess;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// One transfer, either sent over its own connection or copied by the receiver. In the latter case
/// the receiver may still read announced blocks after the sending has failed or been aborted; it
/// discards what it reads.
///
/// Threading: [#run] on a thread of its own; the rest from any.
final class HostSending implements DataPlane.Sending {
    /// Pieces announced to a receiver before it has copied the first of them.
    private static final int MOST_TOLD = 8;

    /// What a loopback connection carries in about 1 ms, as long as the search for its descriptor
    /// may take among 1,000. Shorter transfers are left paced.
    private static final long BULK_BYTES = 4 << 20;

    private static final Logger LOG = LoggerFactory.getLogger(HostSending.class);

    // Made ahead, for where there is no memory.

    private static final DataPlane.Outcome.Failed NOT_DESCRIBED =
            failed(ErrorCode.NO_MEMORY, "no memory to describe why the transfer failed");

    private static final DataPlane.Outcome.Failed GIVEN_UP =
            failed(ErrorCode.CANCELLED, "the transfer was given up");

    private final PeerAddress receiver;
    private final GrantProof proof;
    private final Placement source;
    private final boolean offersMemory;
    private final HostPlane.Checksum checksum;
    private final PieceViews.Pool idle;
    private final ByteBuffer answer = HostWire.buffer(Integer.BYTES);
    private final Deadline deadline;
    private final Consumer<DataPlane.Outcome> end;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private int available;
    private int sent;
    private boolean committed;
    private boolean over;
    private DataPlane.Outcome.@Nullable Failed givenUp;
    private final Cancellation connection = new Cancellation();
    private @Nullable Future<?> timer;

    // Of the connection's thread, where the receiver copies.
    private final int[] lastPieces;
    private int ready;
    private int told;
    private int copied;

    /// @param offersMemory whether a receiver on this host may copy the blocks
    /// @param checksum whether it asks for checksums
    /// @param idle views of pieces
    HostSending(
            PeerAddress receiver,
            Grant grant,
            Placement source,
            boolean offersMemory,
            HostPlane.Checksum checksum,
            PieceViews.Pool idle,
            Deadline deadline,
            Consumer<DataPlane.Outcome> end) {
        this.receiver = receiver;
        this.proof = new GrantProof(grant);
        this.source = source;
        this.offersMemory = offersMemory;
        this.checksum = checksum;
        this.idle = idle;
        this.lastPieces = new int[source.parts().size()];
        this.deadline = deadline;
        this.end = end;
    }

    private static DataPlane.Outcome.Failed failed(ErrorCode code, String text) {
        return new DataPlane.Outcome.Failed(new Failure(code, text));
    }

    void timer(Future<?> limit) {
        lock.lock();
        try {
            timer = limit;
            if (over) {
                limit.cancel(false);
            }
        } finally {
            lock.unlock();
        }
    }

    void run() {
        DataPlane.Outcome outcome = NOT_DESCRIBED;
        try {
            outcome = carry();
        } catch (RuntimeException | Error e) { // any failure must end the transfer
            LoopReport.WARN.log(LOG, "a sending has failed", e);
        }
        finish(outcome);
    }

    private DataPlane.Outcome carry() {
        try {
            return new DataPlane.Outcome.Done(transfer());
        } catch (IOException e) {
            return new DataPlane.Outcome.Failed(
                    new Failure(ErrorCode.PEER_LOST, "receiver at " + receiver + ": " + e));
        } catch (RuntimeException | Error e) {
            return new DataPlane.Outcome.Failed(Failure.of(e));
        }
    }

    private long transfer() throws IOException {
        try (var channel = SocketChannel.open()) {
            connection.begin(channel);
            var address = HostNames.SYSTEM.addresses(receiver.host(), deadline, connection)[0];
            long left = TimeUnit.NANOSECONDS.toMillis(Math.max(1, deadline.remainingNanos()));
            DataSockets.connect(
                    channel,
                    new InetSocketAddress(address, receiver.port()),
                    Math.clamp(left, 1, Integer.MAX_VALUE));
            DataSockets.boundBuffers(channel, 0);
            var memory =
                    offersMemory ? OwnMemory.offer(channel, source) : Optional.<OwnMemory>empty();
            try {
                return transfer(channel, memory);
            } finally {
                memory.ifPresent(OwnMemory::close);
            }
        }
    }

    private long transfer(SocketChannel channel, Optional<OwnMemory> memory) throws IOException {
        boolean wantsSums = checksum.covers(DataSockets.isWithinHost(channel));
        var process = HostWire.process(exchangeProofs(channel), wantsSums);
        memory.ifPresent(own -> own.putProcess(process));
        HostWire.writeFully(channel, process.clear());
        expectGo(channel);
        boolean copies = readChoice(channel, "way");
        boolean sums = readChoice(channel, "checksums");
        if (wantsSums && !sums) {
            throw protocol("leaves out the checksums that were asked for");
        }
        if (copies) {
            var token = HostWire.buffer(PeerProcess.PROBE_BYTES);
            HostWire.readFully(channel, token);
            memory.orElseThrow(() -> protocol("copies what was not offered"))
                    .show(HostWire.bytes(token.flip(), PeerProcess.PROBE_BYTES));
        } else if (source.bytes() >= BULK_BYTES) {
            DataSockets.expectBulk(channel);
        }
        var header = HostWire.buffer(HostWire.PIECE_BYTES);
        var views = idle.take();
        long bytes;
        try {
            bytes = sendParts(channel, header, copies, sums, views);
        } finally {
            idle.give(views);
        }
        awaitCopied(channel, told);
        await(0, true);
        header.clear();
        header.putInt(HostWire.END).putInt(0).putInt(0).putInt(0).putLong(bytes).flip();
        HostWire.writeFully(channel, header);
        expectGo(channel);
        return bytes;
    }

    /// Makes sure that the receiver knows the grant.
    ///
    /// @return this side's own proof
    private byte[] exchangeProofs(SocketChannel channel) throws IOException {
        var nonce = GrantProof.nonce();
        HostWire.writeFully(channel, HostWire.hello(proof.name(), nonce));
        expectGo(channel);
        var challenge = HostWire.buffer(HostWire.CHALLENGE_BYTES);
        HostWire.readFully(channel, challenge);
        var theirs = HostWire.bytes(challenge.flip(), GrantProof.NONCE_BYTES);
        var shown = HostWire.bytes(challenge, GrantProof.PROOF_BYTES);
        if (!proof.isOfReceiver(shown, nonce, theirs)) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED,
                    "who listens at " + receiver + " does not know the grant: nothing was sent");
        }
        return proof.ofSender(nonce, theirs);
    }

    private boolean readChoice(SocketChannel channel, String what) throws IOException {
        int number = HostWire.readInt(channel, answer);
        if (number != 0 && number != 1) {
            throw protocol("answers " + what + " " + number);
        }
        return number == 1;
    }

    private KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, "receiver at " + receiver + " " + what);
    }

    private long sendParts(
            SocketChannel channel,
            ByteBuffer header,
            boolean copies,
            boolean sums,
            PieceViews views)
            throws IOException {
        var runs = copies ? HostWire.buffer(HostWire.MOST_RUNS_BYTES) : header;
        var place = new Place(source);
        for (int part = 0; part < source.parts().size(); part++) {
            if (copies && !isAvailable(part)) {
                awaitCopied(channel, told); // who waits for those parts may make the next one
            }
            await(part + 1, false);
            if (copies) {
                tellPart(channel, runs, place, part, sums, views);
                continue;
            }
            sendPart(channel, header, place, part, sums, views);
            partSent();
        }
        return source.bytes();
    }

    /// Has the receiver copy a part.
    private void tellPart(
            SocketChannel channel,
            ByteBuffer room,
            Place place,
            int part,
            boolean sums,
            PieceViews views)
            throws IOException {
        while (place.part() == part) {
            awaitCopied(channel, told - MOST_TOLD + 1);
            int count = show(place, sums, views);
            putPiece(room, place, count, sums ? views.crc() : 0, views.bytes());
            room.putInt(views.count()).putInt(0);
            for (int run = 0; run < views.count(); run++) {
                room.putLong(views.address(run)).putLong(views.length(run));
            }
            HostWire.writeFully(channel, room.flip());
            told++;
            place.advance(count);
        }
        lastPieces[part] = told;
        ready = part + 1;
    }

    /// Shows the next blocks, and sums them where that is wanted.
    private static int show(Place place, boolean sums, PieceViews views) {
        int count = place.shown(Integer.MAX_VALUE);
        views.show(place.part(), place.current(), place.first(), count);
        if (sums) {
            views.resetSum();
            views.sum();
        }
        return count;
    }

    private static void putPiece(ByteBuffer header, Place place, int count, int crc, long bytes) {
        header.clear();
        header.putInt(place.part()).putInt(place.first()).putInt(count).putInt(crc).putLong(bytes);
    }

    /// Sends a part: as one piece, or in pieces small enough to be summed.
    private void sendPart(
            SocketChannel channel,
            ByteBuffer header,
            Place place,
            int part,
            boolean sums,
            PieceViews views)
            throws IOException {
        var all = source.parts().get(part);
        if (!sums && all.count() > 0) {
            putPiece(header, place, all.count(), 0, all.bytes());
            HostWire.writeFully(channel, header.flip());
        }
        while (place.part() == part) {
            int count = show(place, sums, views);
            if (sums) {
                putPiece(header, place, count, views.crc(), views.bytes());
                HostWire.writeFully(channel, header.flip());
            }
            views.write(channel);
            place.advance(count);
        }
    }

    /// Waits until the receiver has copied that many pieces.
    private void awaitCopied(SocketChannel channel, int pieces) throws IOException {
        while (copied < pieces) {
            expectGo(channel);
            copied++;
        }
        lock.lock();
        try {
            while (sent < ready && lastPieces[sent] <= copied) {
                sent++;
                changed.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    private void expectGo(SocketChannel channel) throws IOException {
        int number = HostWire.readInt(channel, answer);
        if (number != 0) {
            var known = ErrorCode.ofWire(number).orElse(ErrorCode.PEER_REFUSED);
            throw new KvFerryException(
                    known, "receiver at " + receiver + " does not take the transfer: " + known);
        }
    }

    private void checkNotGivenUp() {
        if (givenUp != null) {
            throw givenUp.failure().toException();
        }
    }

    private boolean isAvailable(int part) {
        lock.lock();
        try {
            return available > part;
        } finally {
            lock.unlock();
        }
    }

    /// Waits until so many parts may be sent, and for the commit where it is asked for.
    private void await(int parts, boolean commit) {
        lock.lock();
        try {
            while (available < parts || commit && !committed) {
                checkNotGivenUp(); // the deadline gives up too
                changed.awaitUninterruptibly();
            }
            checkNotGivenUp();
        } finally {
            lock.unlock();
        }
    }

    private void partSent() {
        lock.lock();
        try {
            sent++;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void change(Runnable what) {
        lock.lock();
        try {
            what.run();
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void available(int parts) {
        change(() -> available = Math.max(available, parts));
    }

    @Override
    public boolean awaitSent(int parts, Deadline limit) {
        lock.lock();
        try {
            while (sent < parts && !over && givenUp == null) {
                long left = limit.remainingNanos();
                if (left <= 0) {
                    return false;
                }
                var _ = changed.awaitNanos(left);
            }
            return sent >= parts;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void commit() {
        change(() -> {
            available = source.parts().size();
            committed = true;
        });
    }

    @Override
    public void abort() {
        giveUp(GIVEN_UP);
    }

    void giveUp(DataPlane.Outcome.Failed why) {
        lock.lock();
        try {
            if (over || givenUp != null) {
                return;
            }
            givenUp = why;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        connection.cancel(why.failure().code()); // its thread says the end
    }

    private void finish(DataPlane.Outcome outcome) {
        var told = outcome;
        lock.lock();
        try {
            over = true;
            if (givenUp != null && outcome instanceof DataPlane.Outcome.Failed) {
                told = givenUp;
            }
            if (timer != null) {
                timer.cancel(false);
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        end.accept(told);
    }
}
