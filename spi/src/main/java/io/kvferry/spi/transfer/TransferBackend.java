// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.Optional;

/// A way to move bytes between memory this process registered and memory a peer (or a file, an
/// object) holds. The package description shows the life cycle.
///
/// Threading: as [BackendCapabilities#threading] says; closing a [Prepared] or [Registration]
/// counts as a method of the backend. No method blocks on the network or on a disk, [#close] and
/// [#register] excepted.
///
/// Errors: a broken precondition throws [KvFerryException] with a USAGE code at once; anything that
/// happens to a transfer after [#submit] accepted it is its [TransferOutcome].
public interface TransferBackend extends AutoCloseable {
    /// The same object for the life of the backend, never more than the provider claimed.
    BackendCapabilities capabilities();

    /// Makes memory known. May touch every page.
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] for a kind of memory that no route names,
    ///   [ErrorCode#NO_MEMORY] when it cannot be pinned
    Registration register(MemoryRange memory);

    /// Allocates memory that this backend reaches better than other memory, such as memory that
    /// processes of this machine share; empty when it has none. It is to be registered like any
    /// other ([#register]), and outlives the backend.
    default Optional<ProvidedMemory> provideMemory(long bytes) {
        return Optional.empty();
    }

    /// The data that peers need to reach this agent and its registered memory. Opaque, versioned by
    /// the backend. Empty for a backend without a REMOTE route. Whoever carries it to a peer
    /// carries the [PeerId] beside it.
    byte[] localMetadata();

    /// Adds a peer, or more regions of a known one. Does not connect.
    ///
    /// @throws KvFerryException [ErrorCode#CORRUPT], [ErrorCode#INCOMPATIBLE], or
    ///   [ErrorCode#STALE_INCARNATION] when a later incarnation is known; the state is then
    ///   unchanged
    void loadPeer(PeerId peer, byte[] section);

    /// Forgets a peer: what is in flight to it fails with PEER_LOST, what was prepared for it is
    /// refused from now on. Unknown peers are ignored.
    void dropPeer(PeerId peer);

    /// Resolves descriptors once. Each range must lie within ONE registered region.
    ///
    /// @param peer whose regions; empty for this agent's own
    /// @throws KvFerryException [ErrorCode#NOT_FOUND] when a range is not covered (the message
    ///   names the first one) or the peer is unknown
    Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors);

    /// Some ranges of a prepared list, in the given order, without resolving them again: a long
    /// list is prepared once and any part of it posted.
    ///
    /// @throws KvFerryException as [#prepare], and [ErrorCode#INVALID_REQUEST] for an index out of
    ///   range or for no index at all
    default Prepared select(Prepared all, int[] indices) {
        if (indices.length == 0) {
            throw new KvFerryException(ErrorCode.INVALID_REQUEST, "no descriptor is selected");
        }
        var whole = all.descriptors();
        var part = DescriptorList.builder(whole.kind());
        for (int index : indices) {
            if (index < 0 || index >= whole.count()) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "descriptor " + index + " of a list of " + whole.count());
            }
            part.add(whole.device(index), whole.address(index), whole.length(index));
        }
        return prepare(all.peer(), part.build());
    }

    /// Starts a transfer. The host splits what exceeds [BackendCapabilities#maxDescriptors] or
    /// [BackendCapabilities#maxBytes].
    ///
    /// @throws KvFerryException [ErrorCode#BACKPRESSURE] when the queue is full, and nothing was
    ///   started; [ErrorCode#INVALID_REQUEST] on sides that do not match in count or lengths, or
    ///   swapped sides; [ErrorCode#UNSUPPORTED] on a route or feature not claimed;
    ///   [ErrorCode#STALE_INCARNATION] on a prepared list of an earlier incarnation;
    ///   [ErrorCode#PEER_LOST]; [ErrorCode#CLOSED]
    Transfer submit(TransferRequest request);

    /// Sends a notification without a transfer. If it throws, nothing was sent. If an accepted
    /// notification cannot be delivered, an incident is emitted to [BackendContext#events].
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] without the feature NOTIFY,
    ///   [ErrorCode#NOT_FOUND] for an unknown peer, [ErrorCode#BACKPRESSURE]
    default void notify(PeerId peer, byte[] notification) {
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED, getClass().getSimpleName() + " has no notifications");
    }

    /// Estimates a transfer before it exists, in nanoseconds; empty when the backend has no idea.
    /// The agent corrects estimates by what it measures.
    default Optional<Long> estimateNanos(
            Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
        return Optional.empty();
    }

    /// Properties of a range that need not be registered, such as `size` and `mtime` of a file;
    /// empty when it does not exist.
    ///
    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] without the feature QUERY
    default Optional<Map<String, String>> query(MemoryRange range) {
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED, getClass().getSimpleName() + " answers no queries");
    }

    /// Which way a transfer would take now, and why not another: text for people, one line per way.
    /// Posts nothing.
    ///
    /// @throws KvFerryException as [#submit], but for UNSUPPORTED, BACKPRESSURE and PEER_LOST,
    ///   which are reasons to name
    default String explain(TransferRequest request) {
        return getClass().getSimpleName();
    }

    /// Measurements of this backend since the last call, named as [Stats] says. The opener passes
    /// them on; a connector merges them into its step report. Never blocks.
    default Stats drainStats() {
        return Stats.EMPTY;
    }

    /// Makes progress, without blocking.
    ///
    /// @return how much was done; 0 lets the owner loop idle
    default int poll() {
        return 0;
    }

    /// Fails transfers in flight with CLOSED, disconnects from peers, waits (bounded) until all
    /// transfers have quiesced, then frees threads, sockets, files and registrations. Idempotent:
    /// after a success, further calls return at once; after a failure, they retry what failed.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] while something may touch registered memory,
    ///   which must then stay in place
    @Override
    void close();

    /// State of a peer as the agent knows it.
    enum PeerState {
        /// Metadata loaded, never spoken to.
        KNOWN,
        CONNECTING,
        READY,
        /// An operation failed in a way that a lost peer explains; new work is still accepted.
        SUSPECT,
        /// Gone for good in this incarnation; everything in flight to it has failed.
        LOST
    }
}
