// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// A non-blocking NCCL communicator of two ranks.
///
/// ```
/// initialized -> in progress -> ready -> (group in progress -> ready)* -> finished or aborted
/// ```
///
/// While it is in progress only [#ready] and [#abort] may be called.
///
/// Threading: one thread, the one that made it; [#abort] from any, once, after which nothing else
/// is called.
final class Communicator {
    private final NcclLibrary library;
    private final int peer;
    private final long address;

    /// Receives the answers of queries, of which there are many while something runs.
    private final MemorySegment answer = Arena.ofAuto().allocate(ValueLayout.JAVA_INT);

    private Communicator(NcclLibrary library, int rank, long address) {
        this.library = library;
        this.peer = 1 - rank;
        this.address = address;
    }

    /// Begins to make it. Both ranks have to.
    ///
    /// @param channels of NCCL (thread blocks), 0 for its default
    /// @throws KvFerryException [ErrorCode#IO]
    static Communicator begin(NcclLibrary library, byte[] uniqueId, int rank, int channels) {
        try (var arena = Arena.ofConfined()) {
            var out = arena.allocate(ValueLayout.JAVA_LONG);
            int result = library.initialize(out, uniqueId, rank, channels);
            long address = out.get(ValueLayout.JAVA_LONG, 0);
            if (result != NcclLibrary.SUCCESS && result != NcclLibrary.IN_PROGRESS) {
                var text = library.errorText(result) + " " + library.lastError(address);
                if (address != 0) {
                    var _ = library.abort(address);
                }
                throw new KvFerryException(ErrorCode.IO, "ncclCommInitRankConfig: " + text);
            }
            return new Communicator(library, rank, address);
        }
    }

    /// Whether the last call has taken effect.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when it went wrong, now or earlier; it can only be
    ///   aborted then
    boolean ready() {
        int state = library.asyncError(address, answer);
        if (state == NcclLibrary.IN_PROGRESS) {
            return false;
        }
        check(state, "communicator");
        return true;
    }

    /// Checks that NCCL made what was asked for.
    void confirm() {
        if (library.count(address, answer) != 2 || library.rank(address, answer) != 1 - peer) {
            throw new KvFerryException(ErrorCode.IO, "NCCL made another communicator");
        }
    }

    /// Enqueues sends of the pieces of a buffer, which lie one behind the other, as one group.
    void send(long buffer, long[] pieces, long stream) {
        group(buffer, pieces, stream, true);
    }

    /// Enqueues their receives.
    void receive(long buffer, long[] pieces, long stream) {
        group(buffer, pieces, stream, false);
    }

    private void group(long buffer, long[] pieces, long stream, boolean sends) {
        check(library.groupStart(), "ncclGroupStart");
        int result = NcclLibrary.SUCCESS;
        long at = buffer;
        for (long bytes : pieces) {
            result =
                    sends
                            ? library.send(at, bytes, peer, address, stream)
                            : library.receive(at, bytes, peer, address, stream);
            if (result != NcclLibrary.SUCCESS && result != NcclLibrary.IN_PROGRESS) {
                break;
            }
            at += bytes;
        }
        int ended = library.groupEnd(); // also after a failure: a group is the thread's
        check(result, sends ? "ncclSend" : "ncclRecv");
        check(ended, "ncclGroupEnd");
    }

    /// Begins the orderly end; [#destroy] when [#ready].
    void finish() {
        check(library.finish(address), "ncclCommFinalize");
    }

    void destroy() {
        check(library.destroy(address), "ncclCommDestroy");
    }

    /// Ends what it does and frees it. Returns when no kernel of it runs any more, which may take
    /// long.
    void abort() {
        check(library.abort(address), "ncclCommAbort");
    }

    private void check(int result, String call) {
        if (result != NcclLibrary.SUCCESS && result != NcclLibrary.IN_PROGRESS) {
            throw new KvFerryException(
                    ErrorCode.IO,
                    call + ": " + library.errorText(result) + " " + library.lastError(address));
        }
    }
}
