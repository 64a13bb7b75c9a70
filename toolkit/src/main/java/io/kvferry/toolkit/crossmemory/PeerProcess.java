// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.crossmemory;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// A peer process on this host whose memory is copied through the kernel (cross memory attach).
///
/// The kernel identifies a process only by its pid and reuses the pid of an ended process.
/// Therefore each call first reads the peer's probe, by the same system call: it holds random bits
/// that no other process has at that address.
///
/// Threading: any thread; a [Hand] belongs to one at a time.
public final class PeerProcess {
    private static final Logger LOG = LoggerFactory.getLogger(PeerProcess.class);

    /// Length of the token.
    public static final int PROBE_BYTES = 32;

    private final ProcessIdentity identity;
    private final long probe;
    private final MemorySegment expected;
    private volatile boolean forbidden;

    private PeerProcess(ProcessIdentity identity, long probe, byte[] token) {
        this.identity = identity;
        this.probe = probe;
        this.expected =
                Arena.ofAuto()
                        .allocate(PROBE_BYTES, Long.BYTES)
                        .copyFrom(MemorySegment.ofArray(token));
    }

    /// Proves that a process is what it says, and that this process may read it.
    ///
    /// @param probe address of the token there
    /// @param token of [#PROBE_BYTES]
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason
    public static PeerProcess attach(ProcessIdentity identity, long probe, byte[] token) {
        var process = expect(identity, probe, token);
        long read = process.newHand().readProbe();
        if (read != PROBE_BYTES) {
            throw unavailable(
                    "the probe in process %d was not found, result %d"
                            .formatted(identity.pid(), read));
        }
        return process;
    }

    /// A process that this one may read but that has not been verified yet: the first copy checks
    /// the token at the probe address and fails if it differs.
    ///
    /// @param probe address in readable memory of the process
    /// @param token of [#PROBE_BYTES], as [#attach] has it
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason
    public static PeerProcess expect(ProcessIdentity identity, long probe, byte[] token) {
        var missing = ProcessVm.missing();
        if (missing.isPresent()) {
            throw unavailable(missing.get());
        }
        try {
            if (ProcessIdentity.ownNamespace() != identity.pidNamespace()) {
                throw unavailable("the peer lives in another pid namespace");
            }
            if (!identity.runs()) {
                throw unavailable("process " + identity.pid() + " is not the peer any more");
            }
            if (!identity.isOfThisUser()) {
                throw unavailable("process " + identity.pid() + " is another user's");
            }
        } catch (IOException e) {
            throw unavailable("process " + identity.pid() + " cannot be looked at: " + e);
        }
        var process = new PeerProcess(identity, probe, token);
        long read = process.newHand().readProbe();
        if (read == -ProcessVm.EPERM) {
            throw unavailable(
                    "the kernel does not let process %d be read: %s"
                            .formatted(identity.pid(), CrossMemory.needs()));
        }
        if (read < 0) {
            throw unavailable(
                    "the probe in process %d was not found, result %d"
                            .formatted(identity.pid(), read));
        }
        return process;
    }

    private static KvFerryException unavailable(String why) {
        return new KvFerryException(ErrorCode.UNAVAILABLE, why);
    }

    /// Whether copying was disabled by [#forbid], after the kernel had refused a call.
    public boolean isForbidden() {
        return forbidden;
    }

    /// Disables copying for this peer from now on.
    public void forbid() {
        if (!forbidden) {
            forbidden = true;
            LOG.info(
                    "the kernel does not let process {} be copied any more: {}",
                    identity.pid(),
                    CrossMemory.needs());
        }
    }

    public Hand newHand() {
        return new Hand();
    }

    /// What one thread needs to make calls, made once.
    public final class Hand {
        private final Arena arena = Arena.ofAuto();
        private final MemorySegment state = arena.allocate(ProcessVm.STATE_LAYOUT);
        private final MemorySegment seen = arena.allocate(PROBE_BYTES, Long.BYTES);
        private final MemorySegment seenVector = vector(seen.address());
        private final MemorySegment probeVector = vector(probe);

        private MemorySegment vector(long address) {
            MemorySegment vector = arena.allocate(ProcessVm.VECTOR_BYTES, Long.BYTES);
            vector.set(JAVA_LONG, 0, address);
            vector.set(JAVA_LONG, 8, PROBE_BYTES);
            return vector;
        }

        /// The length of the probe when it is as it must be, 0 when it is something else, else the
        /// negated errno.
        long readProbe() {
            long read = ProcessVm.read(state, identity.pid(), seenVector, 1, probeVector, 1);
            if (read < 0) {
                return read;
            }
            return read == PROBE_BYTES && seen.mismatch(expected) < 0 ? PROBE_BYTES : 0;
        }

        /// Copies what it can of the pieces, and takes that off them; 0, or the negated errno where
        /// it stopped.
        ///
        /// @throws KvFerryException [ErrorCode#PEER_LOST] when the process has ended, before
        ///   anything was copied
        public int copy(boolean write, IoVectors pieces) {
            while (pieces.bytes() > 0) {
                long probed = readProbe();
                if (probed == -ProcessVm.EPERM) {
                    return -ProcessVm.EPERM;
                }
                if (probed != PROBE_BYTES) {
                    throw lost(probed);
                }
                long copied = write ? write(pieces) : read(pieces);
                if (copied == -ProcessVm.ESRCH) {
                    throw lost(copied);
                }
                if (copied <= 0) {
                    return copied == 0 ? -ProcessVm.EFAULT : (int) copied;
                }
                pieces.advance(copied);
            }
            return 0;
        }

        private long write(IoVectors pieces) {
            return ProcessVm.write(
                    state,
                    identity.pid(),
                    pieces.local(),
                    pieces.count(),
                    pieces.remote(),
                    pieces.count());
        }

        private long read(IoVectors pieces) {
            return ProcessVm.read(
                    state,
                    identity.pid(),
                    pieces.local(),
                    pieces.count(),
                    pieces.remote(),
                    pieces.count());
        }

        private KvFerryException lost(long result) {
            return new KvFerryException(
                    ErrorCode.PEER_LOST,
                    "process %d of the peer has ended (%s)"
                            .formatted(
                                    identity.pid(),
                                    result == -ProcessVm.ESRCH
                                            ? "no such process"
                                            : "its probe is gone, result " + result));
        }
    }
}
