// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.memory.Slice.Cursor;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/// The asking side of kvferry's batch messages, see [DataFrames].
public final class BatchDataClient extends DataClient {
    /// Unanswered messages at most.
    private static final int OPEN_MESSAGES = 4;

    private final long incarnation;
    private final @Nullable CRC32C sum;
    private final Cursor asked = new Cursor();
    private final Cursor answered = new Cursor();
    private final Cursor scratch = new Cursor();
    private final Unanswered unanswered = new Unanswered();
    private boolean write;
    private long capability;
    private long token;

    /// @param incarnation short form of the peer's
    public BatchDataClient(
            RegionTable regions, String peerName, long incarnation, boolean checked) {
        super(regions, peerName);
        this.incarnation = incarnation;
        this.sum = checked ? new CRC32C() : null;
    }

    @Override
    public void run(Wire wire, Slice slice, Job job, long token) throws IOException {
        failedRange = -1;
        write = job.write();
        capability = job.capability();
        this.token = token;
        asked.start(slice);
        answered.start(slice);
        unanswered.clear();
        try {
            while (true) {
                while (unanswered.count() < OPEN_MESSAGES && asked.hasNext() && !job.ended()) {
                    ask(wire, asked);
                    unanswered.asked(wire.out);
                }
                if (unanswered.count() == 0) {
                    return;
                }
                answer(wire, answered, unanswered.count() == 1);
            }
        } catch (IOException e) {
            throw refusalBehind(e, wire, answered, unanswered.count());
        }
    }

    /// Sends one message with as many pieces as it may hold.
    private void ask(Wire wire, Cursor pieces) throws IOException {
        scratch.moveTo(pieces);
        int count = 0;
        long size = 0;
        while (count < DataFrames.MOST_ENTRIES && scratch.next()) {
            count++;
            size += scratch.bytes();
        }
        long flags = sum != null ? DataFrames.CHECKED : 0;
        ByteBuffer out = wire.out.room(DataFrames.batchHead(count));
        int start = out.position();
        DataFrames.header(
                out,
                size,
                count | flags << 32,
                write ? DataFrames.BATCH_WRITE : DataFrames.BATCH_READ);
        out.putLong(incarnation).putLong(capability).putLong(token);
        scratch.moveTo(pieces);
        for (int i = 0; i < count; i++) {
            scratch.next();
            out.putLong(scratch.remoteAddress()).putLong(scratch.bytes());
        }
        DataFrames.pad(out, out.position() - start);
        if (write) {
            resetSum();
            for (int i = 0; i < count; i++) {
                pieces.next();
                wire.out.send(local(pieces), pieces.localAddress(), pieces.bytes(), sum);
            }
            if (sum != null) {
                wire.out.sendPieces(); // completes the sum
                DataFrames.trailer(wire.out.room(DataFrames.TRAILER), (int) sum.getValue());
            }
        } else {
            pieces.moveTo(scratch);
        }
    }

    /// Returns once the peer applies no more WRITEs with these tokens.
    ///
    /// @param tokens 0 for none
    /// @throws KvFerryException when the peer answers otherwise
    public void fence(Wire wire, long[] tokens) throws IOException {
        for (long each : tokens) {
            if (each != 0) {
                ByteBuffer out = wire.out.room(DataFrames.batchHead(0));
                int start = out.position();
                DataFrames.header(out, 0, 0, DataFrames.FENCE);
                out.putLong(incarnation).putLong(0).putLong(each);
                DataFrames.pad(out, out.position() - start);
            }
        }
        wire.out.flush();
        for (long each : tokens) {
            if (each != 0) {
                ByteBuffer in = wire.in.need(DataFrames.BATCH_STATUS);
                int code = in.getInt();
                int magic = in.getInt();
                in.getLong();
                DataFrames.unpad(in, DataFrames.STATUS_FIELDS);
                if (magic != DataFrames.BATCH_MAGIC || code != 0) {
                    throw new KvFerryException(
                            ErrorCode.ofWire(code).orElse(ErrorCode.PROTOCOL),
                            "peer %s answered a fence with 0x%08x%08x"
                                    .formatted(peerName, magic, code));
                }
            }
        }
    }

    /// @param last whether no other message is unanswered: of what is refused no bytes come then
    private void answer(Wire wire, Cursor pieces, boolean last) throws IOException {
        if (!write) {
            resetSum();
        }
        status(wire, pieces, last);
        for (int i = 0; i < DataFrames.MOST_ENTRIES && pieces.next(); i++) {
            if (!write) {
                wire.in.expect(local(pieces), pieces.localAddress(), pieces.bytes(), sum);
            }
        }
        wire.in.receiveExpected();
        if (!write && sum != null) {
            ByteBuffer trailer = wire.in.need(DataFrames.TRAILER);
            boolean intact = trailer.getInt() == (int) sum.getValue();
            trailer.getInt();
            DataFrames.unpad(trailer, DataFrames.TRAILER_FIELDS);
            if (!intact) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT,
                        "bytes read from " + peerName + " do not match their CRC32C");
            }
        }
    }

    private void status(Wire wire, Cursor pieces, boolean last) throws IOException {
        if (!wire.in.buffered(DataFrames.BATCH_STATUS)) {
            wire.out.flush();
        }
        ByteBuffer in =
                !write && last
                        ? statusAndBytes(wire, pieces)
                        : wire.in.need(DataFrames.BATCH_STATUS);
        int code = in.getInt();
        int magic = in.getInt();
        long refused = in.getLong();
        DataFrames.unpad(in, DataFrames.STATUS_FIELDS);
        if (magic != DataFrames.BATCH_MAGIC) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "peer %s announced kvferry's extension and answered 0x%08x%08x"
                            .formatted(peerName, magic, code));
        }
        if (code != 0) {
            for (long i = 0; i <= refused && pieces.next(); i++) {
                failedRange = pieces.range();
            }
            throw refusal(code, pieces);
        }
        answered(wire, unanswered);
    }

    private ByteBuffer statusAndBytes(Wire wire, Cursor pieces) throws IOException {
        scratch.moveTo(pieces);
        scratch.next();
        return wire.in.needBefore(
                DataFrames.BATCH_STATUS,
                local(scratch),
                scratch.localAddress(),
                scratch.bytes(),
                sum);
    }

    private KvFerryException refusal(int wireCode, Cursor at) {
        ErrorCode code = ErrorCode.ofWire(wireCode).orElse(ErrorCode.PEER_REFUSED);
        String why =
                switch (code) {
                    case STALE_INCARNATION -> "it has restarted since its addresses were learned";
                    case LEASE_EXPIRED -> "the capability is closed, unknown or for another range";
                    case PEER_REFUSED -> "the range is not inside one region it registered";
                    case CANCELLED -> "this attempt was given up before";
                    case CORRUPT -> "the bytes do not match their CRC32C";
                    default -> "it says " + code;
                };
        return new KvFerryException(
                code,
                "peer %s refused %s of %d bytes at 0x%x: %s"
                        .formatted(
                                peerName,
                                write ? "WRITE" : "READ",
                                at.bytes(),
                                at.remoteAddress(),
                                why));
    }

    private void resetSum() {
        if (sum != null) {
            sum.reset();
        }
    }

    private IOException refusalBehind(IOException failure, Wire wire, Cursor answered, int open) {
        if (write && !wire.isExpired()) {
            try {
                for (int i = 0; i <= open; i++) {
                    answer(wire, answered, false);
                }
            } catch (IOException second) {
                failure.addSuppressed(second);
            }
        }
        return failure;
    }
}
