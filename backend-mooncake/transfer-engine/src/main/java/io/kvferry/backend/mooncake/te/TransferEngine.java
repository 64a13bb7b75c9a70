// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;

/// One Mooncake endpoint of this process: a named segment of registered memory, and one-sided
/// transfers between it and the segments of peers.
///
/// Addresses are absolute virtual addresses, as in Mooncake: local ones of this process, remote
/// ones of the peer's. Life cycle: an implementation's factory returns a running engine;
/// [#register] before any transfer that names the memory; [RegisteredMemory#close] after the last
/// one; [#close] last. Close accepts no more transfers, fails those in flight with
/// [ErrorCode#CLOSED], and returns once no I/O touches registered memory any more; only then may
/// the caller free it.
///
/// Threading: every method may be called from any thread.
public interface TransferEngine extends AutoCloseable {
    /// The identity of this engine and the transport that carries its bytes.
    EngineInfo info();

    /// Makes `memory` readable and writable for peers, and usable as the local end of transfers.
    ///
    /// The caller keeps the memory alive until the registration is closed.
    ///
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] for an empty, heap or read-only segment
    ///   or one that overlaps a registered one
    default RegisteredMemory register(MemorySegment memory) {
        return register(memory, Access.OPEN);
    }

    /// As [#register], for memory whose owner says what peers may do with it.
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] for [Access#GRANTED] where
    ///   [EngineInfo#grants] is false, and for [Access#KEYED] where there is no key
    RegisteredMemory register(MemorySegment memory, Access access);

    /// What peers name to read and write memory of [Access#KEYED], as [EngineRequest#memoryKey];
    /// not guessable, new with each start. 0 where the engine knows no such memory.
    default long memoryKey() {
        return 0;
    }

    /// Allocates zeroed, page-aligned memory and registers it. Prefer it over [#register]: where
    /// the platform allows, peers on the same host reach such memory without a socket.
    ///
    /// @throws KvFerryException [ErrorCode#NO_MEMORY]
    RegisteredMemory allocate(long bytes);

    /// As [#allocate], for memory that outlives its registration and this engine: closing `arena`
    /// frees it, which the caller does when nothing reads it any more.
    ///
    /// @throws KvFerryException as [#register], or [ErrorCode#NO_MEMORY]
    RegisteredMemory allocate(long bytes, Access access, Arena arena);

    /// Allocates zeroed, page-aligned memory that peers on this host reach without a socket once
    /// it, or parts of it, are registered. It outlives this engine: closing `arena` frees it. Empty
    /// where there is none.
    default Optional<MemorySegment> offer(long bytes, Arena arena) {
        return Optional.empty();
    }

    /// Looks a peer's segment up: `host:port` of its handshake socket with `P2PHANDSHAKE`, a
    /// segment name otherwise. Answers from a cache while the peer is the same incarnation. What a
    /// peer on this host shares is being mapped from then on, so that a transfer behind it need
    /// not.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_LOST], [ErrorCode#NOT_FOUND], [ErrorCode#TIMEOUT],
    ///   [ErrorCode#PROTOCOL] when the answer is not a segment document, [ErrorCode#CANCELLED] when
    ///   interrupted, or [ErrorCode#CLOSED] when the engine is closed first
    RemoteSegment open(String segmentName, Deadline deadline);

    /// Starts a transfer without waiting for it. If the peer's queue is full, the returned transfer
    /// has already failed with [ErrorCode#BACKPRESSURE], and nothing was sent.
    default EngineTransfer submit(EngineRequest request) {
        return submit(request, transfer -> transfer);
    }

    /// As [#submit(EngineRequest)], for a caller that must be notified of the end in any case.
    ///
    /// @param follow called with the transfer before it starts. If this throws, such as an
    ///   OutOfMemoryError, the transfer does not start
    /// @return what `follow` returned
    <T> T submit(EngineRequest request, Function<? super EngineTransfer, T> follow);

    /// Runs a transfer in the calling thread as far as the engine can, which saves two thread
    /// switches, and returns its outcome.
    EngineOutcome transfer(EngineRequest request);

    /// Delivers a notification to a peer and waits for its receipt.
    ///
    /// @throws KvFerryException as [#open], or [ErrorCode#PEER_REFUSED]
    void send(String segmentName, Notification notification, Deadline deadline);

    /// Takes up to `max` received notifications, oldest first.
    List<Notification> takeNotifications(int max);

    /// As [#takeNotifications], and waits for the first one if there is none; empty when the
    /// deadline passes; it ends early when the engine is closed.
    List<Notification> awaitNotifications(int max, Deadline deadline);

    /// Permits writes into `extents`, see [WriteGrant]. Each range may span several registered
    /// regions and what lies between them: a write is checked against the regions as well.
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] where [EngineInfo#grants] is false,
    ///   [ErrorCode#INVALID_REQUEST] when there is no range, or an end of one is not registered
    WriteGrant grant(Extents extents, WriteGrant.Writers writers);

    /// As [#grant(Extents, Writers)] for one range and who names the token.
    default WriteGrant grant(long address, long bytes) {
        return grant(Extents.of(address, bytes), WriteGrant.Writers.TOKEN);
    }

    /// Why peers have been unable to reach this engine for a while; empty if they can. The engine
    /// keeps retrying.
    default Optional<String> trouble() {
        return Optional.empty();
    }

    /// WRITEs of peers that were refused since the start, most of them because the grant that they
    /// belong to has been closed. Copies between processes of one host are not counted: who copies
    /// looks whether the grant is open. 0 where the engine cannot tell.
    default long refusedWrites() {
        return 0;
    }

    /// A later call returns at once, or tries again what failed.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a peer on this host that is alive does not
    ///   end its copy, [ErrorCode#NO_MEMORY] when there was too little for a step; the memory must
    ///   not be freed then
    @Override
    void close();
}
