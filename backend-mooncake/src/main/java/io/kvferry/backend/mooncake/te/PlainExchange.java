// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Peer.Habit;
import io.kvferry.backend.mooncake.te.Share.Cursor;
import io.kvferry.spi.Deadline;

import java.io.EOFException;
import java.io.IOException;
import java.util.function.BooleanSupplier;

/// The asking side of protocol version 1, which has no receipts.
///
/// Peers up to release 0.3.9 close a connection after one request, 0.3.10 and 0.3.11 keep it. Which
/// one it is, two READs of one byte tell. On a connection that is kept, a one-byte READ after the
/// last WRITE shows that the server got that far; otherwise the server's close does. Both are more
/// than version 1 promises, so that the outcome still says [Guarantee#SENT].
final class PlainExchange extends Exchange {
    /// Opens one more connection to the same peer.
    interface Connector {
        Wire connect(Deadline deadline) throws IOException;
    }

    private final Peer peer;
    private final Connector connector;
    private final Deadline deadline;

    PlainExchange(
            RegionTable regions,
            Share share,
            boolean write,
            Peer peer,
            BooleanSupplier ended,
            Connector connector,
            Deadline deadline) {
        super(regions, share, write, peer.segmentName, ended);
        this.peer = peer;
        this.connector = connector;
        this.deadline = deadline;
    }

    @Override
    void run(Wire wire) throws IOException {
        if (peer.habit() == Habit.UNKNOWN) {
            learn();
        }
        if (peer.habit() == Habit.KEEPS_OPEN) {
            pipeline(wire);
        } else {
            oneByOne();
        }
    }

    private void learn() throws IOException {
        Cursor first = share.cursor();
        if (!first.next()) {
            return;
        }
        try (Wire probe = connector.connect(deadline)) {
            probe.begin(deadline);
            touch(probe, first.remoteAddress());
            try {
                touch(probe, first.remoteAddress());
                peer.learn(Habit.KEEPS_OPEN);
            } catch (EOFException e) {
                peer.learn(Habit.CLOSES);
            } catch (IOException e) {
                if (probe.isExpired()) {
                    throw e;
                }
                peer.learn(Habit.CLOSES);
            }
        }
    }

    /// Reads one byte at an address and forgets it.
    private static void touch(Wire wire, long address) throws IOException {
        Frames.header(wire.room(Frames.HEADER), 1, address, Frames.READ);
        wire.flush();
        wire.discard(1);
    }

    private void pipeline(Wire wire) throws IOException {
        if (write) {
            Cursor piece = share.cursor();
            while (piece.next() && !ended.getAsBoolean()) {
                send(wire, piece);
            }
            touch(wire, piece.remoteAddress());
            return;
        }
        Cursor asking = share.cursor();
        Cursor taking = share.cursor();
        for (int open = 0; taking.hasNext(); ) {
            while (open < WINDOW && asking.next()) {
                Frames.header(
                        wire.room(Frames.HEADER),
                        asking.bytes(),
                        asking.remoteAddress(),
                        Frames.READ);
                open++;
            }
            wire.flush();
            taking.next();
            wire.receive(local(taking), taking.localAddress(), taking.bytes(), null);
            open--;
        }
    }

    private void oneByOne() throws IOException {
        Cursor piece = share.cursor();
        while (piece.next() && !ended.getAsBoolean()) {
            try (Wire wire = connector.connect(deadline)) {
                wire.begin(deadline);
                if (write) {
                    send(wire, piece);
                    wire.flush();
                    awaitClose(wire);
                } else {
                    Frames.header(
                            wire.room(Frames.HEADER),
                            piece.bytes(),
                            piece.remoteAddress(),
                            Frames.READ);
                    wire.flush();
                    wire.receive(local(piece), piece.localAddress(), piece.bytes(), null);
                }
            }
        }
    }

    private void send(Wire wire, Cursor piece) throws IOException {
        Frames.header(wire.room(Frames.HEADER), piece.bytes(), piece.remoteAddress(), Frames.WRITE);
        wire.send(local(piece), piece.localAddress(), piece.bytes(), null);
    }

    /// A one-shot server closes once it has taken the bytes. Waiting also leaves the TIME_WAIT
    /// state on its side.
    private static void awaitClose(Wire wire) throws IOException {
        try {
            wire.discard(Long.MAX_VALUE);
        } catch (EOFException e) {
            return;
        }
        throw new IOException("the peer sends bytes after a WRITE");
    }
}
