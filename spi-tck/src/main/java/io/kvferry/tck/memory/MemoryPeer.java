// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.List;

/// What one agent knows of another: its incarnation and the ranges it registered.
final class MemoryPeer {
    private static final int VERSION = 1;

    private final PeerId id;
    private volatile long[] starts;
    private volatile long[] lengths;
    private volatile PeerState state = PeerState.KNOWN;
    private volatile boolean dropped;

    MemoryPeer(PeerId id, long[][] ranges) {
        this.id = id;
        this.starts = ranges[0];
        this.lengths = ranges[1];
    }

    static byte[] encode(List<MemoryRegion> regions) {
        var out = new WireWriter().i32(VERSION);
        out.longs(regions.stream().mapToLong(MemoryRegion::address).toArray());
        out.longs(regions.stream().mapToLong(region -> region.memory().length()).toArray());
        return out.toByteArray();
    }

    /// Starts and lengths of the ranges in a section.
    static long[][] decode(PeerId peer, byte[] section) {
        try {
            var in = new WireReader(section);
            int version = in.i32();
            if (version != VERSION) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "MEMORY metadata of "
                                + peer
                                + " is version "
                                + version
                                + ", not "
                                + VERSION);
            }
            var starts = in.longs();
            var lengths = in.longs();
            in.end();
            if (starts.length != lengths.length) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        starts.length + " starts, " + lengths.length + " lengths");
            }
            return new long[][] {starts, lengths};
        } catch (KvFerryException e) {
            if (e.code() == ErrorCode.PROTOCOL) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT, "MEMORY metadata of " + peer + ": " + e.getMessage(), e);
            }
            throw e;
        }
    }

    PeerId id() {
        return id;
    }

    void update(long[][] ranges) {
        starts = ranges[0];
        lengths = ranges[1];
    }

    boolean covers(long at, long length) {
        var from = starts;
        var sizes = lengths;
        for (int i = 0; i < from.length; i++) {
            if (at >= from[i] && length <= sizes[i] && at - from[i] <= sizes[i] - length) {
                return true;
            }
        }
        return false;
    }

    PeerState state() {
        return state;
    }

    /// Whether the state is new.
    boolean moveTo(PeerState next) {
        boolean changed = state != next;
        state = next;
        return changed;
    }

    void drop() {
        dropped = true;
    }

    boolean isDropped() {
        return dropped;
    }
}
