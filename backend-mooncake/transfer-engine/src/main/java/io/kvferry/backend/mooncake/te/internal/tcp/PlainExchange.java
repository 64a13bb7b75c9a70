// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.Share;
import io.kvferry.backend.mooncake.te.internal.memory.Share.Cursor;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer;
import io.kvferry.backend.mooncake.te.internal.transfer.Peer.Habit;

import java.io.EOFException;
import java.io.IOException;

/// The asking side of protocol version 1, which has no receipts.
///
/// Peers up to release 0.3.9 close a connection after one request, 0.3.10 and 0.3.11 keep it. Which
/// one it is, two READs of one byte tell. On a connection that is kept, a one-byte READ after the
/// last WRITE shows that the server got that far; otherwise the server's close does. Both are more
/// than version 1 promises, so that the outcome still says [Guarantee#SENT].
public final class PlainExchange extends Exchange {
    private final Peer peer;
    private final Cursor piece = new Cursor();
    private final Cursor asking = new Cursor();

    public PlainExchange(RegionTable regions, Peer peer) {
        super(regions, peer.segmentName);
        this.peer = peer;
    }

    @Override
    public void run(Wire wire, Share share, Job job, long token) throws IOException {
        failedRange = -1;
        piece.start(share);
        if (peer.habit() == Habit.UNKNOWN) {
            learn(asking.start(share), job);
        }
        if (peer.habit() == Habit.KEEPS_OPEN) {
            pipeline(wire, asking.start(share), job);
        } else {
            oneByOne(job);
        }
    }

    private void learn(Cursor first, Job job) throws IOException {
        if (!first.next()) {
            return;
        }
        Wire probe = job.connect();
        try {
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
        } finally {
            job.disconnect(probe);
        }
    }

    /// Reads one byte at an address and forgets it.
    private static void touch(Wire wire, long address) throws IOException {
        DataFrames.header(wire.room(DataFrames.HEADER), 1, address, DataFrames.READ);
        wire.flush();
        wire.discard(1);
    }

    private void pipeline(Wire wire, Cursor ahead, Job job) throws IOException {
        if (job.write()) {
            while (!job.ended() && piece.next()) {
                send(wire);
            }
            touch(wire, piece.remoteAddress());
            return;
        }
        for (int open = 0; piece.hasNext(); ) {
            while (open < WINDOW && ahead.next()) {
                ask(wire, ahead);
                open++;
            }
            wire.flush();
            piece.next();
            wire.receive(local(piece), piece.localAddress(), piece.bytes(), null);
            open--;
        }
    }

    private void oneByOne(Job job) throws IOException {
        while (!job.ended() && piece.next()) {
            Wire wire = job.connect();
            try {
                if (job.write()) {
                    send(wire);
                    wire.flush();
                    awaitClose(wire);
                } else {
                    ask(wire, piece);
                    wire.flush();
                    wire.receive(local(piece), piece.localAddress(), piece.bytes(), null);
                }
            } finally {
                job.disconnect(wire);
            }
        }
    }

    private static void ask(Wire wire, Cursor piece) throws IOException {
        DataFrames.header(
                wire.room(DataFrames.HEADER),
                piece.bytes(),
                piece.remoteAddress(),
                DataFrames.READ);
    }

    private void send(Wire wire) throws IOException {
        DataFrames.header(
                wire.room(DataFrames.HEADER),
                piece.bytes(),
                piece.remoteAddress(),
                DataFrames.WRITE);
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
