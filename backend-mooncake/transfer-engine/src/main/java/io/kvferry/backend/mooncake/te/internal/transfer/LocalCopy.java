// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.GateSet;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.UnnamedAccess;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;

/// A transfer whose peer is this engine itself. It may do what it might do over a socket, and no
/// more: the address of the peer may come from a stranger.
///
/// Threading: [#run] once, by the thread that holds the gates.
final class LocalCopy {
    /// Bytes copied between two checks whether the transfer was cancelled.
    private static final long PIECE_BYTES = 8 << 20;

    private final EngineRequest request;
    private final TransferContext context;
    private final GateSet held;
    private final boolean write;
    private int failedRange = -1;

    /// @param held has the gates of the local ranges, and gets those of the others
    LocalCopy(EngineRequest request, TransferContext context, GateSet held) {
        this.request = request;
        this.context = context;
        this.held = held;
        this.write = request.operation() == Operation.WRITE;
    }

    int failedRange() {
        return failedRange;
    }

    /// Copies all ranges, none before every one has been looked at.
    ///
    /// @param requireGoingOn throws when the transfer is to end
    /// @throws KvFerryException as over a socket
    void run(Runnable requireGoingOn) {
        if (!request.expectedIncarnation().isEmpty()
                && !request.expectedIncarnation().equals(context.incarnation())) {
            throw new KvFerryException(
                    ErrorCode.STALE_INCARNATION,
                    "%s is incarnation '%s'; the addresses belong to '%s'"
                            .formatted(
                                    request.segmentName(),
                                    context.incarnation(),
                                    request.expectedIncarnation()));
        }
        var under = enter();
        boolean whole = false;
        try {
            copy(requireGoingOn);
            whole = true;
        } finally {
            tell(under, whole);
        }
    }

    /// Enters the gates of all memory that is not held yet.
    ///
    /// @return the grant that each range is written under, null for none
    private @Nullable Grant[] enter() {
        Ranges ranges = request.ranges();
        GrantTable grants = context.grants();
        long token = request.capability() != 0 ? request.capability() : request.memoryKey();
        boolean keyed = token == grants.memoryKey();
        @Nullable Grant named = null;
        if (token != 0 && !keyed) {
            named = grants.find(token);
            if (named == null || !write || !held.enter(named.gate())) {
                throw expired(0);
            }
        }
        var unnamed = new UnnamedAccess(grants, held);
        var under = new @Nullable Grant[ranges.size()];
        for (int i = 0; i < ranges.size(); i++) {
            long address = ranges.remoteAddress(i);
            long bytes = ranges.bytes(i);
            if (bytes == 0) {
                continue;
            }
            Region region = context.regions().find(address, bytes);
            if (region == null || !held.enter(region.gate)) {
                throw refused(i, "is not inside one region of this engine");
            }
            if (named != null) {
                if (!named.covers(address, bytes)) {
                    throw expired(i);
                }
                under[i] = named;
            } else if (!(keyed && region.isKeyed())) {
                if (!unnamed.permits(region, address, bytes, write)) {
                    if (write) {
                        unnamed.refused(address, bytes, true);
                    }
                    throw refused(i, "may not be used without a capability or key");
                }
                under[i] = unnamed.grant();
            }
        }
        return under;
    }

    private KvFerryException refused(int range, String why) {
        failedRange = range;
        return new KvFerryException(
                ErrorCode.PEER_REFUSED,
                "range %d: 0x%x+%d %s"
                        .formatted(
                                range,
                                request.ranges().remoteAddress(range),
                                request.ranges().bytes(range),
                                why));
    }

    private KvFerryException expired(int range) {
        failedRange = range;
        return new KvFerryException(
                ErrorCode.LEASE_EXPIRED,
                "range %d: the capability is closed, or does not permit this".formatted(range));
    }

    private void copy(Runnable requireGoingOn) {
        Ranges ranges = request.ranges();
        for (int i = 0; i < ranges.size(); i++) {
            long bytes = ranges.bytes(i);
            for (long at = 0; at < bytes; at += PIECE_BYTES) {
                requireGoingOn.run();
                copy(
                        ranges.localAddress(i) + at,
                        ranges.remoteAddress(i) + at,
                        Math.min(PIECE_BYTES, bytes - at));
            }
        }
    }

    private void copy(long local, long remote, long bytes) {
        Region near = context.regions().find(local, bytes);
        Region far = context.regions().find(remote, bytes);
        if (near == null || far == null) { // their gates are held
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "no region of 0x%x and 0x%x".formatted(local, remote));
        }
        long nearOffset = local - near.address;
        long farOffset = remote - far.address;
        if (write) {
            MemorySegment.copy(near.memory, nearOffset, far.memory, farOffset, bytes);
        } else {
            MemorySegment.copy(far.memory, farOffset, near.memory, nearOffset, bytes);
        }
    }

    private void tell(@Nullable Grant[] under, boolean whole) {
        for (int i = 0; i < under.length; i++) {
            Grant grant = under[i];
            if (grant != null && whole) {
                grant.arrived(request.ranges().remoteAddress(i), request.ranges().bytes(i), true);
            } else if (grant != null) {
                grant.torn();
            }
        }
    }
}
