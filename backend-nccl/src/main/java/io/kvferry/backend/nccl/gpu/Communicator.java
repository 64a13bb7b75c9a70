// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/// A non-blocking NCCL communicator of two ranks.
///
/// ```
/// initialized -> in progress -> ready -> (group in progress -> ready)* -> finished or aborted
/// ```
///
/// While it is in progress only [#ready] and [#abort] may be called.
///
/// Threading: one thread, the one that made it; [#abort] from any, at any time, also while a call
/// runs: that call, and all later ones, end with an exception.
final class Communicator {
    private final NcclLibrary library;
    private final int peer;
    private final long address;

    /// Receives the answers of queries, of which there are many while something runs.
    private final MemorySegment answer = Arena.ofAuto().allocate(ValueLayout.JAVA_INT);

    /// Who is in a call of NCCL, for whoever looks after the thread that makes it.
    private final AtomicReference<@Nullable Communicator> calling;

    private final AtomicReference<Use> use = new AtomicReference<>(Use.IDLE);
    private final ReentrantLock freeing = new ReentrantLock();
    private boolean freed;

    private enum Use {
        IDLE,
        CALLING,
        /// Aborted, or destroyed.
        OVER
    }

    private Communicator(
            NcclLibrary library,
            int rank,
            long address,
            AtomicReference<@Nullable Communicator> calling) {
        this.library = library;
        this.peer = 1 - rank;
        this.address = address;
        this.calling = calling;
    }

    /// Begins to make it. Both ranks have to.
    ///
    /// @param channels of NCCL (thread blocks), 0 for its default
    /// @param calling is this communicator while a call of it runs, else null
    /// @throws KvFerryException [ErrorCode#IO]
    static Communicator begin(
            NcclLibrary library,
            byte[] uniqueId,
            int rank,
            int channels,
            AtomicReference<@Nullable Communicator> calling) {
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
            return new Communicator(library, rank, address, calling);
        }
    }

    /// Whether the last call has taken effect.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when it went wrong, now or earlier; it can only be
    ///   aborted then
    boolean ready() {
        enter();
        int result;
        try {
            int state = library.asyncError(address, answer);
            result = state == NcclLibrary.IN_PROGRESS ? state : checked(state, "communicator");
        } finally {
            leave();
        }
        checkNotAborted();
        return result != NcclLibrary.IN_PROGRESS;
    }

    /// Checks that NCCL made what was asked for.
    void confirm() {
        enter();
        boolean right;
        try {
            right =
                    library.count(address, answer) == 2
                            && library.rank(address, answer) == 1 - peer;
        } finally {
            leave();
        }
        checkNotAborted();
        if (!right) {
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
        enter();
        try {
            var _ = checked(library.groupStart(), "ncclGroupStart");
            int result = NcclLibrary.SUCCESS;
            long at = buffer;
            for (long bytes : pieces) {
                if (use.get() == Use.OVER) {
                    break; // aborted meanwhile: its memory is NCCL's no more
                }
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
            var _ = checked(result, sends ? "ncclSend" : "ncclRecv");
            var _ = checked(ended, "ncclGroupEnd");
        } finally {
            leave();
        }
        checkNotAborted();
    }

    /// Begins the orderly end; [#destroy] when [#ready].
    void finish() {
        enter();
        try {
            var _ = checked(library.finish(address), "ncclCommFinalize");
        } finally {
            leave();
        }
        checkNotAborted();
    }

    void destroy() {
        if (!freeing.tryLock()) { // an abort waits until this has ended, not the reverse
            throw aborted();
        }
        try {
            enter();
            try {
                var _ = checked(library.destroy(address), "ncclCommDestroy");
                freed = true;
            } finally {
                leave();
            }
            use.set(Use.OVER);
        } finally {
            freeing.unlock();
        }
    }

    /// Ends what it does and frees it, unless that was done. Returns when no kernel of it runs any
    /// more, which may take long.
    void abort() {
        use.set(Use.OVER);
        freeing.lock();
        try {
            if (freed) {
                return;
            }
            freed = true;
            int result = library.abort(address);
            if (result != NcclLibrary.SUCCESS && result != NcclLibrary.IN_PROGRESS) {
                throw new KvFerryException(
                        ErrorCode.IO, "ncclCommAbort: " + library.errorText(result));
            }
        } finally {
            freeing.unlock();
        }
    }

    private void enter() {
        calling.set(this);
        if (!use.compareAndSet(Use.IDLE, Use.CALLING)) {
            calling.set(null);
            throw aborted();
        }
    }

    private void leave() {
        var _ = use.compareAndSet(Use.CALLING, Use.IDLE); // else it was aborted meanwhile
        calling.set(null);
    }

    private void checkNotAborted() {
        if (use.get() == Use.OVER) {
            throw aborted();
        }
    }

    private static KvFerryException aborted() {
        return new KvFerryException(ErrorCode.TIMEOUT, "the communicator was aborted");
    }

    /// On the thread of the communicator, in a call.
    private int checked(int result, String call) {
        if (result == NcclLibrary.SUCCESS || result == NcclLibrary.IN_PROGRESS) {
            return result;
        }
        if (use.get() == Use.OVER) {
            throw aborted(); // NCCL's own error state is gone
        }
        throw new KvFerryException(
                ErrorCode.IO,
                call + ": " + library.errorText(result) + " " + library.lastError(address));
    }
}
