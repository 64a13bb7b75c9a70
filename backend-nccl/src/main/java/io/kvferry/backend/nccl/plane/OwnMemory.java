// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.toolkit.crossmemory.PeerProcess;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;
import io.kvferry.toolkit.net.DataSockets;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Optional;

/// What a sender shows of itself so that a receiver on the same host can copy the blocks: who it is
/// as a process, and a place where it puts a token that the receiver draws. So a sender can only
/// offer the memory of its own process.
///
/// Threading: the thread that made it.
final class OwnMemory implements AutoCloseable {
    private static final Optional<ProcessIdentity> SELF = ProcessIdentity.own();

    private final Arena arena = Arena.ofConfined();
    private final MemorySegment probe = arena.allocate(PeerProcess.PROBE_BYTES, Long.BYTES);
    private final ProcessIdentity self;

    private OwnMemory(ProcessIdentity self) {
        this.self = self;
    }

    /// Empty where the peer is on another host, or the blocks are in no memory that has an address.
    static Optional<OwnMemory> offer(SocketChannel connection, Placement source)
            throws IOException {
        boolean offers =
                SELF.isPresent()
                        && DataSockets.isWithinHost(connection)
                        && source.parts().stream().allMatch(part -> part.segment().isNative());
        return offers ? Optional.of(new OwnMemory(SELF.get())) : Optional.empty();
    }

    /// @param message as [HostWire#process] makes it
    void putProcess(ByteBuffer message) {
        message.position(GrantProof.PROOF_BYTES);
        message.putInt(self.pid()).position(GrantProof.PROOF_BYTES + 2 * Integer.BYTES);
        message.putLong(self.startTicks()).putLong(self.pidNamespace()).putLong(probe.address());
    }

    void show(byte[] token) {
        probe.copyFrom(MemorySegment.ofArray(token));
    }

    @Override
    public void close() {
        arena.close();
    }
}
