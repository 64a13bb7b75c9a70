// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.GateSet;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.TransferFences;
import io.kvferry.backend.mooncake.te.internal.memory.UnnamedAccess;
import io.kvferry.spi.ErrorCode;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.function.LongPredicate;
import java.util.zip.CRC32C;

/// The serving side of kvferry's batch messages, see [DataFrames]. One per connection. Moves
/// nothing until every range of the message has been checked.
final class BatchServer {
    private final RegionTable regions;
    private final GrantTable grants;
    private final UnnamedAccess unnamed;
    private final TransferFences fences;
    private final Refusals refusals;
    private final long incarnation;
    private final long[] addresses = new long[DataFrames.MOST_ENTRIES];
    private final long[] lengths = new long[DataFrames.MOST_ENTRIES];
    private final @Nullable Region[] targets = new @Nullable Region[DataFrames.MOST_ENTRIES];

    /// The grants that the ranges are written under, null for open memory.
    private final @Nullable Grant[] under = new @Nullable Grant[DataFrames.MOST_ENTRIES];

    private final CRC32C crc = new CRC32C();
    private long refusedRange;
    private volatile long token;

    /// Receives WRITEs that were refused.
    @FunctionalInterface
    interface Refusals {
        /// @param address of the range for which it was refused
        void refused(long address, long bytes);
    }

    /// @param unnamed decides about messages without capability or key
    BatchServer(
            RegionTable regions,
            GrantTable grants,
            UnnamedAccess unnamed,
            TransferFences fences,
            Refusals refusals,
            long incarnation) {
        this.refusals = refusals;
        this.fences = fences;
        this.unnamed = unnamed;
        this.regions = regions;
        this.grants = grants;
        this.incarnation = incarnation;
    }

    /// Serves the message whose header was just read. False when the connection must be hung up
    /// after a flush.
    boolean serve(Wire wire, GateSet held, boolean write, long size, long countAndFlags)
            throws IOException {
        int count = (int) countAndFlags;
        int flags = (int) (countAndFlags >>> 32);
        if (count < 1
                || count > DataFrames.MOST_ENTRIES
                || size <= 0
                || (flags & ~DataFrames.CHECKED) != 0) {
            reply(wire, ErrorCode.PROTOCOL.wire(), 0);
            return false;
        }
        boolean awaited = !wire.in.buffered(DataFrames.batchHead(count) - DataFrames.HEADER);
        if (awaited) {
            wire.beginTogether();
        }
        ByteBuffer in = wire.in.need(DataFrames.BATCH_HEADER);
        long wanted = in.getLong();
        long capability = in.getLong();
        token = in.getLong(); // before it is looked up: either this sees the fence or it is seen
        readTable(wire, count);
        if (awaited) {
            wire.begin();
        }
        refusedRange = 0;
        int code =
                fences.refuses(token)
                        ? ErrorCode.CANCELLED.wire()
                        : check(held, count, size, wanted, capability, write);
        if (code != 0) {
            if (write && code != ErrorCode.CANCELLED.wire()) { // its sender gave that one up
                refusals.refused(addresses[(int) refusedRange], lengths[(int) refusedRange]);
            }
            reply(wire, code, refusedRange);
            // The bytes of a refused WRITE are under way; a refused READ leaves the stream in
            // order.
            return !write;
        }
        boolean checked = (flags & DataFrames.CHECKED) != 0;
        if (write) {
            receive(wire, count, checked);
        } else {
            send(wire, count, checked);
        }
        return true;
    }

    /// The token of the message that is being served, 0 for none.
    long token() {
        return token;
    }

    /// The message has been served.
    void done() {
        token = 0;
    }

    /// Serves a fence whose header was just read.
    ///
    /// @param host where it comes from
    /// @param ending ends whatever else is under way with a token; false when it does not end
    void fence(Wire wire, String host, LongPredicate ending) throws IOException {
        wire.beginTogether();
        ByteBuffer in = wire.in.need(DataFrames.BATCH_HEADER);
        long wanted = in.getLong();
        in.getLong();
        long ended = in.getLong();
        DataFrames.unpadHead(wire.in, 0);
        wire.begin();
        if (wanted != incarnation) {
            reply(wire, ErrorCode.STALE_INCARNATION.wire(), 0);
            return;
        }
        if (ended == 0) { // 0 is shared by all requests without a token, such as READs
            reply(wire, ErrorCode.PROTOCOL.wire(), 0);
            return;
        }
        fences.refuse(host, ended);
        reply(wire, ending.test(ended) ? 0 : ErrorCode.TIMEOUT.wire(), 0);
    }

    private void readTable(Wire wire, int count) throws IOException {
        for (int i = 0; i < count; i++) {
            ByteBuffer entry = wire.in.need(DataFrames.BATCH_ENTRY);
            addresses[i] = entry.getLong();
            lengths[i] = entry.getLong();
        }
        DataFrames.unpadHead(wire.in, count);
    }

    private int check(
            GateSet held, int count, long size, long wanted, long capability, boolean write) {
        if (wanted != incarnation) {
            return ErrorCode.STALE_INCARNATION.wire();
        }
        Grant grant = null;
        boolean keyed = capability == grants.memoryKey();
        if (capability != 0 && !keyed) {
            grant = grants.find(capability);
            if (grant == null || !write || !held.enter(grant.gate())) {
                return ErrorCode.LEASE_EXPIRED.wire();
            }
        }
        long total = 0;
        for (int i = 0; i < count; i++) {
            refusedRange = i;
            Region region = regions.find(addresses[i], lengths[i]);
            if (region == null || !held.enter(region.gate)) {
                return ErrorCode.PEER_REFUSED.wire();
            }
            if (grant != null && !grant.covers(addresses[i], lengths[i])) {
                return ErrorCode.LEASE_EXPIRED.wire();
            }
            boolean byKey = keyed && region.isKeyed();
            if (grant == null
                    && !byKey
                    && !unnamed.permits(region, addresses[i], lengths[i], write)) {
                return ErrorCode.PEER_REFUSED.wire();
            }
            targets[i] = region;
            under[i] = grant != null || byKey ? grant : unnamed.grant();
            total += lengths[i];
        }
        return total == size ? 0 : ErrorCode.PROTOCOL.wire();
    }

    private void receive(Wire wire, int count, boolean checked) throws IOException {
        boolean whole = false;
        boolean intact;
        try {
            intact = receiveRanges(wire, count, checked);
            whole = true;
        } finally {
            if (!whole) {
                torn(count);
            }
        }
        for (int i = 0; intact && i < count; i++) { // while the gates of the grants are held
            Grant grant = under[i];
            if (grant != null) {
                grant.arrived(addresses[i], lengths[i], true);
            }
        }
        DataFrames.batchStatus(
                wire.out.room(DataFrames.BATCH_STATUS), intact ? 0 : ErrorCode.CORRUPT.wire(), 0);
    }

    private void torn(int count) {
        for (int i = 0; i < count; i++) {
            Grant grant = under[i];
            if (grant != null) {
                grant.torn();
            }
        }
    }

    private boolean receiveRanges(Wire wire, int count, boolean checked) throws IOException {
        CRC32C sum = sum(checked);
        for (int i = 0; i < count; i++) {
            wire.in.expect(target(i), addresses[i], lengths[i], sum);
        }
        wire.in.receiveExpected();
        if (sum == null) {
            return true;
        }
        ByteBuffer trailer = wire.in.need(DataFrames.TRAILER);
        boolean intact = trailer.getInt() == (int) sum.getValue();
        trailer.getInt();
        DataFrames.unpad(trailer, DataFrames.TRAILER_FIELDS);
        return intact;
    }

    private void send(Wire wire, int count, boolean checked) throws IOException {
        CRC32C sum = sum(checked);
        DataFrames.batchStatus(wire.out.room(DataFrames.BATCH_STATUS), 0, 0);
        for (int i = 0; i < count; i++) {
            wire.out.send(target(i), addresses[i], lengths[i], sum);
        }
        wire.out.sendPieces(); // while the regions are held
        if (sum != null) {
            DataFrames.trailer(wire.out.room(DataFrames.TRAILER), (int) sum.getValue());
        }
    }

    private @Nullable CRC32C sum(boolean checked) {
        crc.reset();
        return checked ? crc : null;
    }

    private Region target(int index) {
        Region region = targets[index];
        if (region == null) {
            throw new IllegalStateException("range " + index + " was not checked");
        }
        return region;
    }

    private static void reply(Wire wire, int code, long range) throws IOException {
        DataFrames.batchStatus(wire.out.room(DataFrames.BATCH_STATUS), code, range);
    }
}
