// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;

/// What this agent knows of another: its segment, its engine's incarnation, its regions, and what
/// is in flight to it.
final class MooncakePeer {
    private static final int VERSION = 2;

    private final PeerId id;
    private volatile Section section;
    private final AtomicReference<PeerState> state = new AtomicReference<>(PeerState.KNOWN);
    private final Set<MooncakeTransfer> inFlight = ConcurrentHashMap.newKeySet();
    private volatile boolean dropped;

    MooncakePeer(PeerId id, Section section) {
        this.id = id;
        this.section = section;
    }

    /// This backend's section of an agent's metadata.
    ///
    /// @param incarnation of the engine; empty for a native one
    /// @param memoryKey what its engine wants named by those who read and write; 0 for nothing
    record Section(
            String segmentName, String incarnation, long memoryKey, long[] starts, long[] lengths) {
        static byte[] encode(
                String segmentName,
                String incarnation,
                long memoryKey,
                Collection<MooncakeRegistration> registered) {
            var regions = List.copyOf(registered); // the same ones for both lists
            return new WireWriter()
                    .i32(VERSION)
                    .string(segmentName)
                    .string(incarnation)
                    .i64(memoryKey)
                    .longs(regions.stream().mapToLong(MooncakeRegistration::address).toArray())
                    .longs(regions.stream().mapToLong(region -> region.memory().length()).toArray())
                    .toByteArray();
        }

        static Section decode(PeerId peer, byte[] bytes) {
            try {
                var in = new WireReader(bytes);
                int version = in.i32();
                if (version != VERSION) {
                    throw new KvFerryException(
                            ErrorCode.INCOMPATIBLE,
                            "MOONCAKE metadata of "
                                    + peer
                                    + " is version "
                                    + version
                                    + ", not "
                                    + VERSION);
                }
                var section =
                        new Section(in.string(), in.string(), in.i64(), in.longs(), in.longs());
                in.end();
                if (section.starts.length != section.lengths.length
                        || section.segmentName.isEmpty()
                        || !section.incarnation.matches("([0-9a-f]{32})?")) {
                    throw new KvFerryException(ErrorCode.PROTOCOL, "fields contradict each other");
                }
                return section;
            } catch (KvFerryException e) {
                if (e.code() == ErrorCode.PROTOCOL) {
                    throw new KvFerryException(
                            ErrorCode.CORRUPT,
                            "MOONCAKE metadata of " + peer + ": " + e.getMessage(),
                            e);
                }
                throw e;
            }
        }

        boolean covers(long at, long length) {
            for (int i = 0; i < starts.length; i++) {
                long offset = at - starts[i];
                if (Long.compareUnsigned(offset, lengths[i]) < 0
                        && Long.compareUnsigned(length, lengths[i] - offset) <= 0) {
                    return true;
                }
            }
            return false;
        }
    }

    PeerId id() {
        return id;
    }

    Section section() {
        return section;
    }

    void update(Section newer) {
        section = newer;
    }

    /// Returns whether the state changed. Allocates nothing, so that no change is lost when the
    /// heap is full.
    boolean moveTo(PeerState next) {
        return state.getAndSet(next) != next;
    }

    void started(MooncakeTransfer transfer) {
        inFlight.add(transfer);
        if (dropped) {
            transfer.lose();
        }
    }

    void ended(MooncakeTransfer transfer) {
        inFlight.remove(transfer);
    }

    boolean isDropped() {
        return dropped;
    }

    void drop() {
        dropped = true;
        inFlight.forEach(MooncakeTransfer::lose);
    }
}
