// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Share.Cursor;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.function.BooleanSupplier;

/// The asking side of the data port with receipts (version 2): one share of a transfer over one
/// connection.
///
/// Requests go ahead of their replies, up to a window, so that a batch of short ranges costs about
/// one round trip. A server reads one request after the other from the stream and needs to know
/// nothing about it.
///
/// Not for version 1 ([PlainExchange]) nor for batches ([BatchExchange]).
class Exchange {
    /// Unanswered requests on one connection at most. Their headers (1.5 KiB) and receipts (0.5
    /// KiB) fit into any socket buffer, so neither side can block the other.
    static final int WINDOW = 64;

    final RegionTable regions;
    final Share share;
    final boolean write;
    final String peerName;

    /// True once the transfer has failed or was given up elsewhere.
    final BooleanSupplier ended;

    /// The range that was refused.
    int failedRange = -1;

    Exchange(
            RegionTable regions,
            Share share,
            boolean write,
            String peerName,
            BooleanSupplier ended) {
        this.regions = regions;
        this.share = share;
        this.write = write;
        this.peerName = peerName;
        this.ended = ended;
    }

    /// Runs the whole share from its start.
    ///
    /// @throws IOException when the connection fails; whether anything arrived, [Wire#received]
    ///   tells
    /// @throws KvFerryException when the peer refuses or breaks the protocol; the connection is of
    ///   no use then
    void run(Wire wire) throws IOException {
        Cursor acknowledged = share.cursor();
        try {
            if (write) {
                write(wire, acknowledged);
            } else {
                read(wire, acknowledged);
            }
        } catch (IOException e) {
            throw refusalBehind(e, wire, acknowledged);
        }
    }

    private void write(Wire wire, Cursor acknowledged) throws IOException {
        Cursor sending = share.cursor();
        int open = 0;
        while (sending.next() && !ended.getAsBoolean()) {
            if (open == WINDOW) {
                receipt(wire, acknowledged);
                open--;
            }
            Frames.header(
                    wire.room(Frames.HEADER),
                    sending.bytes(),
                    sending.remoteAddress(),
                    Frames.WRITE | Frames.V2);
            wire.send(local(sending), sending.localAddress(), sending.bytes(), null);
            open++;
        }
        while (open-- > 0) {
            receipt(wire, acknowledged);
        }
    }

    private void read(Wire wire, Cursor taking) throws IOException {
        Cursor asking = share.cursor();
        int open = 0;
        while (true) {
            while (open < WINDOW && !ended.getAsBoolean() && asking.next()) {
                Frames.header(
                        wire.room(Frames.HEADER),
                        asking.bytes(),
                        asking.remoteAddress(),
                        Frames.READ | Frames.V2);
                open++;
            }
            if (open == 0) {
                return;
            }
            receipt(wire, taking);
            wire.receive(local(taking), taking.localAddress(), taking.bytes(), null);
            open--;
        }
    }

    private void receipt(Wire wire, Cursor of) throws IOException {
        if (!wire.buffered(Frames.STATUS)) {
            wire.flush();
        }
        ByteBuffer status = wire.need(Frames.STATUS);
        int code = status.getInt();
        int magic = status.getInt();
        of.next();
        if (magic != Frames.MAGIC) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "peer %s announced protocol version 2 and answered 0x%08x%08x"
                            .formatted(peerName, magic, code));
        }
        if (code != Frames.STATUS_OK) {
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
        if (write && !wire.isExpired() && acknowledged.hasNext()) {
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
