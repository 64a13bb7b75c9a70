// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.memory.Slice.Cursor;

import java.io.EOFException;
import java.io.IOException;

/// The asking side of protocol version 1, which has no receipts.
///
/// Peers up to release 0.3.9 close a connection after one request, 0.3.10 and 0.3.11 keep it. Which
/// one it is, two READs of one byte tell. On a connection that is kept, a one-byte READ after the
/// last WRITE shows that the server got that far; otherwise the server's close does. Both are more
/// than version 1 promises, so that the outcome still says [Guarantee#SENT].
public final class PlainDataClient extends DataClient {
    private final PeerHabit habit;
    private final Cursor piece = new Cursor();
    private final Cursor asking = new Cursor();

    /// @param habit of the peer, which all its connections learn
    public PlainDataClient(RegionTable regions, String peerName, PeerHabit habit) {
        super(regions, peerName);
        this.habit = habit;
    }

    @Override
    public void run(Wire wire, Slice slice, Job job, long token) throws IOException {
        failedRange = -1;
        piece.start(slice);
        if (habit.kind() == PeerHabit.Kind.UNKNOWN) {
            learn(asking.start(slice), job);
        }
        if (habit.kind() == PeerHabit.Kind.KEEPS_OPEN) {
            pipeline(wire, asking.start(slice), job);
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
                habit.learn(PeerHabit.Kind.KEEPS_OPEN);
            } catch (EOFException e) {
                habit.learn(PeerHabit.Kind.CLOSES);
            } catch (IOException e) {
                if (probe.isExpired()) {
                    throw e;
                }
                habit.learn(PeerHabit.Kind.CLOSES);
            }
        } finally {
            job.disconnect(probe);
        }
    }

    /// Reads one byte at an address and forgets it.
    private static void touch(Wire wire, long address) throws IOException {
        DataFrames.header(wire.out.room(DataFrames.HEADER), 1, address, DataFrames.READ);
        wire.out.flush();
        wire.in.discard(1);
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
            wire.out.flush();
            piece.next();
            wire.in.receive(local(piece), piece.localAddress(), piece.bytes(), null);
            open--;
        }
    }

    private void oneByOne(Job job) throws IOException {
        while (!job.ended() && piece.next()) {
            Wire wire = job.connect();
            try {
                if (job.write()) {
                    send(wire);
                    wire.out.flush();
                    awaitClose(wire);
                } else {
                    ask(wire, piece);
                    wire.out.flush();
                    wire.in.receive(local(piece), piece.localAddress(), piece.bytes(), null);
                }
            } finally {
                job.disconnect(wire);
            }
        }
    }

    private static void ask(Wire wire, Cursor piece) throws IOException {
        DataFrames.header(
                wire.out.room(DataFrames.HEADER),
                piece.bytes(),
                piece.remoteAddress(),
                DataFrames.READ);
    }

    private void send(Wire wire) throws IOException {
        DataFrames.header(
                wire.out.room(DataFrames.HEADER),
                piece.bytes(),
                piece.remoteAddress(),
                DataFrames.WRITE);
        wire.out.send(local(piece), piece.localAddress(), piece.bytes(), null);
    }

    /// A one-shot server closes once it has taken the bytes. Waiting also leaves the TIME_WAIT
    /// state on its side.
    private static void awaitClose(Wire wire) throws IOException {
        try {
            wire.in.discard(Long.MAX_VALUE);
        } catch (EOFException e) {
            return;
        }
        throw new IOException("the peer sends bytes after a WRITE");
    }
}
