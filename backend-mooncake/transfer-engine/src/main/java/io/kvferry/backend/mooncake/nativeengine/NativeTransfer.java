// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Guarantee;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/// One batch of the library.
///
/// Threading: [#begin] on a submitter, [#poll] on the poller, never both at once, because a batch
/// must be used by one thread at a time; the rest from any.
final class NativeTransfer implements EngineTransfer {
    private static final EngineOutcome UNDESCRIBED =
            new Failed(
                    new Failure(ErrorCode.NO_MEMORY, "the transfer failed without a description"),
                    -1);

    private final NativeTransferEngine engine;
    private final TeLibrary library;
    private final MemorySegment handle;
    private final NativeConfig config;
    private final EngineRequest request;
    private final CompletableFuture<EngineOutcome> outcome = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private long batch = TeLibrary.INVALID_BATCH;
    private int tasks;
    private int polled;
    private int firstFailed = -1;

    /// The library refused the batch, although it has started some of its tasks.
    private boolean refused;

    /// Whether the library may work on it.
    private boolean begun;

    /// Whether the library may have freed the batch, which then must not be used any more.
    private boolean freed;

    /// The one behind it in a list of [Batches].
    @Nullable NativeTransfer next;

    NativeTransfer(
            NativeTransferEngine engine,
            TeLibrary library,
            MemorySegment handle,
            NativeConfig config,
            EngineRequest request) {
        this.engine = engine;
        this.library = library;
        this.handle = handle;
        this.config = config;
        this.request = request;
    }

    /// Hands the tasks to the library; false when it is over already. Whatever it throws,
    /// [#failToBegin] is called for.
    boolean begin() {
        if (outcome.isDone()) {
            rest();
            return false;
        }
        if (request.deadline().passed()) {
            refuse(ErrorCode.TIMEOUT, "the deadline passed before the transfer began");
            return false;
        }
        submit(engine.segment(request.segmentName(), false));
        return true;
    }

    private void submit(int segment) {
        Ranges ranges = request.ranges();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment requests = arena.allocate(TeLibrary.REQUEST, Math.max(1, ranges.size()));
            for (int i = 0; i < ranges.size(); i++) {
                if (ranges.bytes(i) > 0) {
                    long at = tasks++ * TeLibrary.REQUEST.byteSize();
                    requests.set(
                            ValueLayout.JAVA_INT,
                            at,
                            request.operation() == Operation.READ ? 0 : 1);
                    requests.set(ValueLayout.JAVA_LONG, at + 8, ranges.localAddress(i));
                    requests.set(ValueLayout.JAVA_INT, at + 16, segment);
                    requests.set(ValueLayout.JAVA_LONG, at + 24, ranges.remoteAddress(i));
                    requests.set(ValueLayout.JAVA_LONG, at + 32, ranges.bytes(i));
                }
            }
            batch = library.allocateBatch(handle, Math.max(1, tasks));
            if (batch == TeLibrary.INVALID_BATCH || batch == 0) {
                throw new KvFerryException(
                        ErrorCode.NO_MEMORY, "allocateBatchID(" + tasks + ") failed");
            }
            begun = true;
            refused = true; // for all that is known if the call throws
            int rc = tasks == 0 ? 0 : library.submit(handle, batch, requests, tasks);
            refused = rc != 0;
            if (refused) {
                engine.forgetSegment(request.segmentName());
                begun = !free();
                KvFerryException why = refusal(rc);
                if (!begun) {
                    throw why;
                }
                giveUp(why.code(), String.valueOf(why.getMessage()));
            }
        }
    }

    private KvFerryException refusal(int rc) {
        return new KvFerryException(
                rc == 8 ? ErrorCode.INCOMPATIBLE : ErrorCode.INVALID_REQUEST,
                "submitTransfer(%s, %d tasks) returned %d%s"
                        .formatted(
                                request.segmentName(),
                                tasks,
                                rc,
                                rc == 8
                                        ? ": the peer uses another transport than "
                                                + config.protocol()
                                        : ""));
    }

    /// Polls the tasks that are not yet terminal; true once the batch is freed. May be called again
    /// after an OutOfMemoryError.
    ///
    /// @param status room for one status
    /// @throws KvFerryException when the library breaks its contract
    boolean poll(MemorySegment status, Executor notifying) {
        if (freed && polled < tasks) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "a batch is lost of which the library may do some tasks");
        }
        while (polled < tasks) {
            status.fill((byte) 0);
            int rc = library.status(handle, batch, polled, status);
            if (rc != 0 && refused) {
                tasks = polled; // those behind it were not begun
                break;
            }
            if (rc != 0) {
                throw new KvFerryException(ErrorCode.INTERNAL, "getTransferStatus returned " + rc);
            }
            int state = status.get(ValueLayout.JAVA_INT, 0);
            if (state != TeLibrary.COMPLETED
                    && state != TeLibrary.FAILED
                    && state != TeLibrary.TIMED_OUT) {
                giveUpIfOverdue();
                return false;
            }
            if (state != TeLibrary.COMPLETED && firstFailed < 0) {
                firstFailed = polled;
            }
            polled++;
        }
        if (!freed && !free()) {
            return false;
        }
        rest();
        if (refused) {
            return true;
        }
        if (firstFailed >= 0) {
            engine.forgetSegment(request.segmentName());
            outcome.complete(
                    new Failed(
                            new Failure(
                                    ErrorCode.PEER_LOST,
                                    "%s of %d bytes with %s failed in the library: the peer is gone or refused the range; its log on stderr may say more"
                                            .formatted(
                                                    request.operation(),
                                                    request.ranges().totalBytes(),
                                                    request.segmentName())),
                            firstFailed));
        } else {
            complete(notifying);
        }
        return true;
    }

    /// False when the library still works on what it refused.
    private boolean free() {
        freed = true; // set first: a call that throws must not be made again
        int rc = library.freeBatch(handle, batch);
        if (rc != 0 && !refused) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL,
                    "freeBatchID returned " + rc + " after the last task ended");
        }
        freed = rc == 0;
        return freed;
    }

    private void complete(Executor notifying) {
        // The C API does not say which protocol version a TCP peer speaks, so a WRITE counts as
        // sent only.
        boolean applied = request.operation() == Operation.READ || config.protocol().equals("rdma");
        var done =
                new Completed(
                        request.ranges().totalBytes(),
                        applied ? Guarantee.APPLIED : Guarantee.SENT,
                        config.protocol());
        if (request.notification().isEmpty()) {
            outcome.complete(done);
            return;
        }
        try {
            notifying.execute(() -> {
                try {
                    engine.send(
                            request.segmentName(),
                            request.notification().get(),
                            request.deadline());
                    outcome.complete(done);
                } catch (RuntimeException | Error e) { // the waiting caller must be notified
                    outcome.complete(new Failed(Failure.of(e), -1));
                }
            });
        } catch (RejectedExecutionException e) {
            outcome.complete(
                    new Failed(
                            new Failure(
                                    ErrorCode.BACKPRESSURE,
                                    "the data arrived, but its notification could not be sent"),
                            -1));
        }
    }

    /// Ends it before the library knew of it.
    void refuse(ErrorCode code, String message) {
        giveUp(code, message);
        rest();
    }

    /// Ends the transfer for the caller; the library may continue to work on it.
    void giveUp(ErrorCode code, String message) {
        if (outcome.isDone()) {
            return;
        }
        EngineOutcome end;
        try {
            end = new Failed(new Failure(code, message), -1);
        } catch (OutOfMemoryError e) { // the poller keeps polling it
            end = UNDESCRIBED;
        }
        outcome.complete(end);
    }

    void giveUpIfOverdue() {
        if (request.deadline().passed()) {
            giveUp(ErrorCode.TIMEOUT, "the deadline passed");
        }
    }

    /// What happened in [#begin] ends it for the caller.
    ///
    /// @return whether the library may work on it, so that it has to be polled
    boolean failToBegin(Throwable why) {
        abandon(why);
        if (!begun) {
            rest();
        }
        return begun;
    }

    /// Ends it without ever being quiesced: the library may touch the buffers at any time.
    void abandon(Throwable why) {
        try {
            outcome.complete(new Failed(Failure.of(why), -1));
        } catch (RuntimeException | Error _) { // no memory to describe it
            outcome.complete(UNDESCRIBED);
        }
    }

    /// Whether the library has let go of it.
    boolean isQuiet() {
        return quiesced.isDone();
    }

    private void rest() {
        quiesced.complete(null);
    }

    @Override
    public CompletionStage<EngineOutcome> outcome() {
        return outcome.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiesced.thenCombine(outcome, (_, _) -> null);
    }

    @Override
    public void cancel() {
        giveUp(
                ErrorCode.CANCELLED,
                "cancelled; the library cannot be stopped and may continue until it is quiesced");
    }
}
