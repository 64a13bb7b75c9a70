// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.IoVectors;
import io.kvferry.toolkit.crossmemory.PeerProcess;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.SecureRandom;
import java.util.Optional;

/// The memory of a sender on this host, from which the kernel copies into the window.
///
/// Threading: one thread.
final class SenderMemory {
    private static final Logger LOG = LoggerFactory.getLogger(SenderMemory.class);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final PeerProcess.Hand hand;
    private final byte[] token;
    private final IoVectors vectors = new IoVectors(Arena.ofAuto());
    private final ByteBuffer runs = HostWire.buffer(HostWire.MOST_BLOCKS * HostWire.RUN_BYTES);

    private SenderMemory(PeerProcess process, byte[] token) {
        this.hand = process.newHand();
        this.token = token;
    }

    /// Empty where the sender offers none, or this process may not copy it.
    ///
    /// @param process as the sender says it
    static Optional<SenderMemory> of(ByteBuffer process) {
        int pid = process.getInt();
        process.getInt();
        var identity = new ProcessIdentity(pid, process.getLong(), process.getLong());
        long probe = process.getLong();
        if (pid <= 0) {
            return Optional.empty();
        }
        var token = new byte[PeerProcess.PROBE_BYTES];
        RANDOM.nextBytes(token);
        try {
            return Optional.of(new SenderMemory(PeerProcess.expect(identity, probe, token), token));
        } catch (KvFerryException e) {
            LOG.debug("blocks of process {} come over TCP: {}", pid, e.toString());
            return Optional.empty();
        }
    }

    byte[] token() {
        return token;
    }

    /// Reads where the blocks of a piece are, and copies them.
    ///
    /// @param views of the window, at that piece
    /// @throws KvFerryException [ErrorCode#PROTOCOL] when the lengths of the runs do not match,
    ///   [ErrorCode#PEER_LOST] when the process is not the sender (any more), [ErrorCode#IO]
    void copy(SocketChannel channel, PieceViews views) throws IOException {
        runs.clear().limit(HostWire.RUNS_BYTES);
        HostWire.readFully(channel, runs);
        int count = runs.flip().getInt();
        if (count < 1 || count > HostWire.MOST_BLOCKS) {
            throw protocol("a piece of " + count + " runs");
        }
        runs.clear().limit(count * HostWire.RUN_BYTES);
        HostWire.readFully(channel, runs);
        pair(runs.flip(), views);
        int error = hand.copy(false, vectors);
        if (error != 0) {
            throw new KvFerryException(
                    ErrorCode.IO,
                    "process_vm_readv of %d bytes at 0x%x of the sender: errno %d"
                            .formatted(views.bytes(), vectors.remoteAddress(), -error));
        }
    }

    private void pair(ByteBuffer remote, PieceViews views) {
        vectors.clear();
        int view = 0;
        long used = 0;
        long left = views.bytes();
        while (remote.hasRemaining()) {
            long address = remote.getLong();
            long bytes = remote.getLong();
            if (bytes < 1 || bytes > left) {
                throw protocol("a run of " + bytes + " bytes, where " + left + " are left");
            }
            left -= bytes;
            while (bytes > 0) {
                long part = Math.min(bytes, views.length(view) - used);
                vectors.add(0, views.address(view) + used, address, part);
                address += part;
                bytes -= part;
                used += part;
                if (used == views.length(view)) {
                    view++;
                    used = 0;
                }
            }
        }
        if (left != 0) {
            throw protocol("runs that are " + left + " bytes short of their piece");
        }
    }

    private static KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what);
    }
}
