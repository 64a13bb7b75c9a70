// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletableFuture;

/// A communicator with one peer that transfers whole tensors, one at a time, as vLLM's
/// P2pNcclEngine does with `ncclSend` and `ncclRecv`.
///
/// After any exception but NO_MEMORY it is unusable, and its owner must close it.
///
/// Threading: one thread, the owner, calls [#buffer], [#send], [#receive] and [#close], each of
/// which waits for a bounded time; [#abandon] from any. The rest is confined to the loop.
public final class TensorLane implements AutoCloseable {
    private final TensorLanes lanes;
    private final String peer;

    /// Of the loop.
    private @Nullable Communicator communicator;

    private GpuDriver.@Nullable Stream stream;
    private @Nullable Turns turns;
    private boolean made;
    private final Deadline setUp;
    private final CompletableFuture<Void> ready = new CompletableFuture<>();
    private @Nullable CompletableFuture<Void> running = ready;
    private @Nullable Failure over;

    /// Taken and replaced on the loop, while the owner waits.
    private GpuDriver.@Nullable Buffer buffer;

    private long bufferBytes;
    private boolean closed;

    TensorLane(TensorLanes lanes, String peer, Deadline setUp) {
        this.lanes = lanes;
        this.peer = peer;
        this.setUp = setUp;
    }

    String peer() {
        return peer;
    }

    // ---- the owner

    /// Waits until the communicator stands.
    ///
    /// @throws KvFerryException [ErrorCode#IO], [ErrorCode#TIMEOUT], [ErrorCode#CLOSED], or what it
    ///   was abandoned with
    public void awaitReady() {
        var _ = lanes.await(ready, lanes.setUp().multipliedBy(2), peer);
    }

    /// The host part of the lane's buffer, of at least `bytes`. Growing it loses its contents.
    ///
    /// @throws KvFerryException [ErrorCode#NO_MEMORY] when it cannot be allocated; the lane stays
    ///   usable
    public MemorySegment buffer(long bytes) {
        return lanes.await(lanes.call(() -> grow(bytes)), lanes.setUp(), peer);
    }

    /// Sends the first bytes of the buffer as one tensor.
    public void send(long bytes) {
        move(true, bytes);
    }

    /// Receives one tensor of exactly that many bytes into the buffer.
    public void receive(long bytes) {
        move(false, bytes);
    }

    private void move(boolean sends, long bytes) {
        var end = new CompletableFuture<Void>();
        lanes.post(() -> begin(sends, bytes, end));
        // What is left of the limit passes on the loop; this one ends the wait where that hangs.
        var _ = lanes.await(end, lanes.turn().multipliedBy(2), peer);
    }

    /// Fails the lane and the operation that runs on it; the caller of the operation gets the
    /// failure.
    public void abandon(Failure why) {
        lanes.post(() -> fail(why));
    }

    /// Aborts the communicator and frees all memory, in the background.
    @Override
    public void close() {
        lanes.post(() -> {
            if (!closed) {
                closed = true;
                fail(new Failure(ErrorCode.CLOSED, peer + ": the lane is closed"));
                lanes.free(this, communicator, stream, buffer, bufferBytes);
                buffer = null;
            }
        });
    }

    // ---- the loop

    void begin(byte[] uniqueId, int rank) {
        if (over != null) {
            return; // abandoned before it began
        }
        try {
            communicator =
                    Communicator.begin(
                            lanes.library(), uniqueId, rank, lanes.channels(), lanes.calling());
            stream = lanes.driver().openStream();
            turns = new Turns(communicator, stream, lanes.turn(), _ -> ended());
        } catch (RuntimeException | Error e) { // whatever it was, its owner waits
            fail(Failure.of(e));
        }
    }

    private MemorySegment grow(long bytes) {
        checkGoing();
        var known = buffer;
        if (known != null && bufferBytes >= bytes) {
            return known.host();
        }
        if (known != null) {
            buffer = null;
            lanes.room().give(bufferBytes);
            known.close();
        }
        long size = Math.max(TensorLanes.LEAST_BUFFER, Long.highestOneBit(bytes - 1) << 1);
        if (!lanes.room().take(size)) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, peer + ": no room for a tensor of " + bytes + " bytes");
        }
        try {
            var made = lanes.driver().allocate(size);
            buffer = made;
            bufferBytes = size;
            return made.host();
        } catch (RuntimeException | Error e) {
            lanes.room().give(size);
            throw e;
        }
    }

    private void begin(boolean sends, long bytes, CompletableFuture<Void> end) {
        try {
            checkGoing();
            var memory = buffer;
            var queue = turns;
            if (memory == null || queue == null || running != null || bytes > bufferBytes) {
                throw new IllegalStateException("a tensor without a buffer, or two at once");
            }
            running = end;
            queue.add(new Turns.Turn(sends, memory, new long[] {bytes}, bytes));
        } catch (RuntimeException | Error e) { // as above
            end.completeExceptionally(e);
        }
    }

    private void checkGoing() {
        if (over != null) {
            throw over.toException();
        }
    }

    private void ended() {
        var end = running;
        running = null;
        if (end != null) {
            end.complete(null);
        }
    }

    void fail(Failure why) {
        if (over == null) {
            // NO_MEMORY would mean that the lane is still usable.
            over =
                    why.code() == ErrorCode.NO_MEMORY
                            ? new Failure(ErrorCode.IO, why.message())
                            : why;
        }
        var end = running;
        running = null;
        if (end != null) {
            end.completeExceptionally(over.toException());
        }
    }

    /// Moves on as far as it goes without waiting.
    Pace look() {
        var each = communicator;
        var queue = turns;
        if (over != null || each == null || queue == null) {
            return Pace.NONE;
        }
        try {
            if (made) {
                return queue.advance();
            }
            if (each.ready()) {
                each.confirm();
                made = true;
                ended();
                return Pace.NONE;
            }
            if (setUp.passed()) {
                fail(new Failure(ErrorCode.TIMEOUT, peer + ": no communicator in time"));
            }
            return Pace.STEADY;
        } catch (RuntimeException | Error e) { // other lanes are not affected
            fail(Failure.of(e));
            return Pace.NONE;
        }
    }
}
