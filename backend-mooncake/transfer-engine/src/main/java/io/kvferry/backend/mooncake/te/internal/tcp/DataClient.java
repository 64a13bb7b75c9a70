// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.memory.Slice.Cursor;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.ByteBuffer;

/// The client side of the data port with receipts (version 2): one slice of a transfer over one
/// connection. Belongs to a connection and is reused for each slice, so that a transfer does not
/// allocate one.
///
/// Requests are pipelined up to a window, so that a batch of short ranges costs about one round
/// trip. A server reads one request after the other from the stream and needs no support for this.
///
/// Not for version 1 ([PlainDataClient]) nor for batches ([BatchDataClient]).
public class DataClient {
    /// Unanswered requests on one connection at most. Their headers (1.5 KiB) and receipts (0.5
    /// KiB) fit into any socket buffer, so neither side can block the other.
    static final int WINDOW = 64;

    /// The transfer that a slice is part of.
    public interface Job {
        boolean write();

        /// Token of the capability that it writes under, or else the peer's memory key; 0 for
        /// neither.
        long capability();

        /// True once the transfer has failed or was given up elsewhere.
        boolean ended();

        /// One more connection to the same peer, cut off when the transfer is given up.
        Wire connect() throws IOException;

        void disconnect(Wire wire);
    }

    final RegionTable regions;
    final String peerName;
    private final Cursor first = new Cursor();
    private final Cursor second = new Cursor();
    private final Unanswered unanswered = new Unanswered();

    /// The range that was refused.
    public int failedRange = -1;

    public DataClient(RegionTable regions, String peerName) {
        this.regions = regions;
        this.peerName = peerName;
    }

    /// Runs the whole slice from its start.
    ///
    /// @param token names this attempt to peers that can refuse its late bytes
    /// @throws IOException when the connection fails; [Wire#received] tells whether anything
    ///   arrived
    /// @throws KvFerryException when the peer refuses or breaks the protocol; the connection must
    ///   then be closed
    public void run(Wire wire, Slice slice, Job job, long token) throws IOException {
        failedRange = -1;
        unanswered.clear();
        Cursor acknowledged = first.start(slice);
        try {
            if (job.write()) {
                write(wire, second.start(slice), acknowledged, job);
            } else {
                read(wire, second.start(slice), acknowledged, job);
            }
        } catch (IOException e) {
            throw job.write() ? refusalBehind(e, wire, acknowledged) : e;
        }
    }

    private void write(Wire wire, Cursor sending, Cursor acknowledged, Job job) throws IOException {
        while (!job.ended() && sending.next()) {
            if (unanswered.count() == WINDOW) {
                receipt(wire, acknowledged);
            }
            DataFrames.header(
                    wire.out.room(DataFrames.HEADER),
                    sending.bytes(),
                    sending.remoteAddress(),
                    DataFrames.WRITE | DataFrames.V2);
            wire.out.send(local(sending), sending.localAddress(), sending.bytes(), null);
            unanswered.asked(wire.out);
        }
        while (unanswered.count() > 0) {
            receipt(wire, acknowledged);
        }
    }

    private void read(Wire wire, Cursor asking, Cursor taking, Job job) throws IOException {
        while (true) {
            while (unanswered.count() < WINDOW && !job.ended() && asking.next()) {
                DataFrames.header(
                        wire.out.room(DataFrames.HEADER),
                        asking.bytes(),
                        asking.remoteAddress(),
                        DataFrames.READ | DataFrames.V2);
                unanswered.asked(wire.out);
            }
            if (unanswered.count() == 0) {
                return;
            }
            taking.next();
            check(receiptOfRead(wire, taking, unanswered.count() == 1), taking, false);
            answered(wire, unanswered);
            wire.in.receive(local(taking), taking.localAddress(), taking.bytes(), null);
        }
    }

    private void receipt(Wire wire, Cursor of) throws IOException {
        if (!wire.in.buffered(DataFrames.STATUS)) {
            wire.out.flush();
        }
        ByteBuffer status = wire.in.need(DataFrames.STATUS);
        of.next();
        check(status, of, true);
        answered(wire, unanswered);
    }

    /// Checks that the oldest request, which was not refused, has been sent completely. Only a
    /// refusal may arrive earlier, since the header is enough for it. After any other early answer,
    /// queued bytes would be sent when the memory is no longer held.
    final void answered(Wire wire, Unanswered requests) {
        if (!requests.answered(wire.out)) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "peer %s answered a request before it was sent".formatted(peerName));
        }
    }

    /// @param last whether no other request is unanswered: of what is refused no bytes come then
    private ByteBuffer receiptOfRead(Wire wire, Cursor of, boolean last) throws IOException {
        if (!wire.in.buffered(DataFrames.STATUS)) {
            wire.out.flush();
        }
        return last
                ? wire.in.needBefore(
                        DataFrames.STATUS, local(of), of.localAddress(), of.bytes(), null)
                : wire.in.need(DataFrames.STATUS);
    }

    private void check(ByteBuffer status, Cursor of, boolean write) {
        int code = status.getInt();
        int magic = status.getInt();
        if (magic != DataFrames.MAGIC) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "peer %s announced protocol version 2 and answered 0x%08x%08x"
                            .formatted(peerName, magic, code));
        }
        if (code != DataFrames.STATUS_OK) {
            failedRange = of.range();
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED,
                    "peer %s refused %s of %d bytes at 0x%x (status %d): the range is not inside one region it registered"
                            .formatted(
                                    peerName,
                                    write ? "WRITE" : "READ",
                                    of.bytes(),
                                    of.remoteAddress(),
                                    code));
        }
    }

    /// A server that refuses a request closes while later ones are under way; its refusal may still
    /// be readable.
    private IOException refusalBehind(IOException failure, Wire wire, Cursor acknowledged) {
        if (!wire.isExpired() && !wire.isStopped() && acknowledged.hasNext()) {
            try {
                while (acknowledged.hasNext()) {
                    receipt(wire, acknowledged);
                }
            } catch (IOException second) {
                failure.addSuppressed(second);
            }
        }
        return failure;
    }

    final Region local(Cursor piece) {
        return local(piece.localAddress(), piece.bytes());
    }

    private Region local(long address, long bytes) {
        @Nullable Region region = regions.find(address, bytes);
        if (region == null) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "local range 0x%x+%d was unregistered during the transfer"
                            .formatted(address, bytes));
        }
        return region;
    }
}
