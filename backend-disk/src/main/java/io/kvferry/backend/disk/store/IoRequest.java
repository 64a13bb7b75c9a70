// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/// One reusable request and who may end it.
///
/// ```
/// FREE -> QUEUED -> MEMORY <-> IO -> FREE     the I/O thread serves it
///            \                   \
///             -> ABANDONED         -> HANGING -> FREE   its deadline passed first: the caller was told TIMEOUT
/// ```
///
/// In MEMORY the thread copies to or from the caller's segments, which takes microseconds and
/// cannot hang, so the deadline waits for it. In IO the caller's segments are never written, so an
/// abandoned load leaves them alone for good, however long the system call hangs. A system call of
/// an abandoned save may still read them; what it makes of them is a temporary file that never gets
/// a name, and reading memory that is gone fails the call and nothing else. Each use has a number
/// in the upper bits of the state, so that a deadline check of an earlier use cannot end a later
/// one.
final class IoRequest {
    enum Kind {
        LOAD,
        SAVE,
        LOCATE
    }

    private static final int FREE = 0;
    private static final int QUEUED = 1;
    private static final int MEMORY = 2;
    private static final int IO = 3;
    private static final int ABANDONED = 4;
    private static final int HANGING = 5;
    private static final long PHASE_MASK = 7;
    private static final int PHASE_BITS = 3;

    private static final BlockCallback NOBODY = (_, _) -> {};

    private final AtomicLong state = new AtomicLong(FREE);
    private Kind kind = Kind.LOAD;
    private @Nullable BlockKey key;
    private List<MemorySegment> segments = List.of();
    private List<BlockKey> keys = List.of();
    private volatile long deadlineNanos;
    private BlockCallback callback = NOBODY;
    private long tag;

    void prepare(
            Kind newKind,
            @Nullable BlockKey newKey,
            List<MemorySegment> newSegments,
            List<BlockKey> newKeys,
            long newDeadlineNanos,
            BlockCallback newCallback,
            long newTag) {
        kind = newKind;
        key = newKey;
        segments = newSegments;
        keys = newKeys;
        deadlineNanos = newDeadlineNanos;
        callback = newCallback;
        tag = newTag;
        state.set((((state.get() >>> PHASE_BITS) + 1) << PHASE_BITS) | QUEUED);
    }

    Kind kind() {
        return kind;
    }

    BlockKey key() {
        if (key == null) {
            throw new IllegalStateException("a " + kind + " request has no single key");
        }
        return key;
    }

    List<MemorySegment> segments() {
        return segments;
    }

    List<BlockKey> keys() {
        return keys;
    }

    /// I/O thread: takes the request up; false when its deadline passed in the queue.
    boolean start() {
        return move(QUEUED, MEMORY);
    }

    /// I/O thread: from here on the deadline may take the request away.
    void enterIo() {
        if (!move(MEMORY, IO)) {
            throw new IllegalStateException("request is not in its memory phase: " + state.get());
        }
    }

    /// I/O thread: back from the system; false when the deadline took the request, and the caller's
    /// memory with it.
    boolean leaveIo() {
        return move(IO, MEMORY);
    }

    /// Whether the deadline took the request; a long protocol asks between its steps.
    boolean abandoned() {
        return (state.get() & PHASE_MASK) >= ABANDONED;
    }

    /// Whether its thread hangs in the file system on behalf of nobody.
    boolean stalled() {
        return (state.get() & PHASE_MASK) == HANGING;
    }

    /// I/O thread: claims the right to tell the caller; false when the deadline already did.
    boolean finish() {
        return move(MEMORY, FREE) || move(IO, FREE);
    }

    /// I/O thread, after [#finish] said yes.
    void tell(BlockResult result) {
        callback.completed(tag, result);
    }

    /// Deadline thread: ends the request if its time has passed.
    void expire(long now, StoreCounters counters) {
        long seen = state.get();
        long phase = seen & PHASE_MASK;
        if ((phase != QUEUED && phase != IO) || deadlineNanos - now > 0) {
            return;
        }
        // Copied first: after the exchange the I/O thread may come back and recycle the request.
        // They belong to this
        // use if the exchange succeeds, because the number of the use is part of the state.
        BlockCallback told = callback;
        long toldTag = tag;
        Kind what = kind;
        if (!state.compareAndSet(
                seen, (seen & ~PHASE_MASK) | (phase == IO ? HANGING : ABANDONED))) {
            return;
        }
        counters.timeouts.increment();
        told.completed(
                toldTag,
                BlockResult.Failed.of(
                        ErrorCode.TIMEOUT,
                        what
                                + " missed its deadline "
                                + (phase == IO ? "in the file system" : "in the queue")));
    }

    /// Queue: forgets the caller's objects once nobody uses the request any more.
    void clear() {
        key = null;
        segments = List.of();
        keys = List.of();
        callback = NOBODY;
        state.set(state.get() & ~PHASE_MASK);
    }

    private boolean move(int from, int to) {
        long seen = state.get();
        return (seen & PHASE_MASK) == from && state.compareAndSet(seen, (seen & ~PHASE_MASK) | to);
    }
}
