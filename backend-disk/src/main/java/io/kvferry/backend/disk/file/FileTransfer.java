// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.file;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/// One transfer, executed by one I/O thread. It is ended by the I/O thread, the deadline thread or
/// a cancellation, whichever comes first.
final class FileTransfer implements Transfer, Runnable {
    /// Bytes moved between two checks for cancellation.
    private static final long CHUNK_BYTES = 4 << 20;

    private static final TransferOutcome CANCELLED = new TransferOutcome.Cancelled();
    private static final TransferOutcome TIMED_OUT = new TransferOutcome.TimedOut();
    private static final Failure UNACCOUNTED =
            new Failure(ErrorCode.NO_MEMORY, "the transfer failed without a description");

    private enum State {
        ACTIVE,
        CANCELLING,
        ENDED
    }

    private final long id;
    private final TransferRequest request;
    private final FilePrepared host;
    private final FilePrepared file;
    private final BooleanSupplier backendClosed;
    private final Consumer<FileTransfer> whenQuiesced;
    private final long submitted = System.nanoTime();
    private final AtomicReference<State> state = new AtomicReference<>(State.ACTIVE);
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private final boolean[] moved;

    /// Preallocated outcome for when building a failure throws, most likely for lack of memory.
    private final TransferOutcome unaccounted;

    private volatile boolean taken;

    FileTransfer(
            long id,
            TransferRequest request,
            FilePrepared host,
            FilePrepared file,
            BooleanSupplier backendClosed,
            Consumer<FileTransfer> whenQuiesced) {
        this.id = id;
        this.request = request;
        this.host = host;
        this.file = file;
        this.backendClosed = backendClosed;
        this.whenQuiesced = whenQuiesced;
        this.moved = new boolean[host.descriptors().count()];
        this.unaccounted = new TransferOutcome.Failed(UNACCOUNTED, moved);
    }

    @Override
    public CompletionStage<TransferOutcome> completion() {
        return completion.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiesced.minimalCompletionStage();
    }

    @Override
    public Optional<TransferOutcome> poll() {
        return completion.isDone() ? Optional.of(completion.join()) : Optional.empty();
    }

    @Override
    public boolean cancel() {
        return state.compareAndSet(State.ACTIVE, State.CANCELLING)
                || state.get() == State.CANCELLING;
    }

    /// Called by the deadline thread: ends a transfer that is late, or that was cancelled while its
    /// I/O thread hangs. Returns false once the transfer has ended.
    boolean watch() {
        return goesOn();
    }

    /// Whether no I/O thread has taken it yet.
    boolean isQueued() {
        return !taken;
    }

    /// Ends the transfer as closed before an I/O thread has taken it.
    void refuse() {
        try {
            end(closedOutcome());
        } finally {
            end(unaccounted);
            quiesce();
        }
    }

    /// Ends the transfer because the backend is closed. Its I/O thread, which may hang, notices
    /// later.
    void abort() {
        end(closedOutcome());
    }

    @Override
    public void run() {
        taken = true;
        try {
            if (!goesOn()) {
                return;
            }
            for (int i = 0; i < moved.length; i++) {
                if (!move(i)) {
                    return;
                }
                moved[i] = true;
            }
            end(
                    new TransferOutcome.Done(
                            host.descriptors().bytes(), true, System.nanoTime() - submitted));
        } catch (ClosedChannelException _) {
            end(closedOutcome());
        } catch (IOException e) {
            fail(
                    new Failure(
                            FileTrouble.isFull(e) ? ErrorCode.NO_SPACE : ErrorCode.STORAGE_IO,
                            FileTrouble.describe("transfer " + id, e)));
        } catch (RuntimeException | Error e) {
            fail(Failure.of(e)); // the border: nothing may escape from an I/O thread
        } finally {
            end(unaccounted); // unless it has ended otherwise
            quiesce();
        }
    }

    private boolean move(int index) throws IOException {
        Registered memory = host.covers().get(index);
        Registered range = file.covers().get(index);
        long length = host.descriptors().length(index);
        long address = host.descriptors().address(index);
        long position = range.position(file.descriptors().address(index));
        for (long done = 0; done < length; ) {
            if (memory.isClosed() || backendClosed.getAsBoolean()) {
                end(closedOutcome());
                return false;
            }
            if (!goesOn()) {
                return false;
            }
            long chunk = Math.min(CHUNK_BYTES, length - done);
            ByteBuffer bytes = memory.slice(address + done, chunk).asByteBuffer();
            if (!range.enter()) {
                end(closedOutcome());
                return false;
            }
            try {
                moveChunk(range.channel(), bytes, position + done);
            } finally {
                range.leave();
            }
            done += chunk;
        }
        return true;
    }

    private void moveChunk(FileChannel channel, ByteBuffer bytes, long position)
            throws IOException {
        while (bytes.hasRemaining()) {
            long at = position + bytes.position();
            int n =
                    request.operation() == Operation.READ
                            ? channel.read(bytes, at)
                            : channel.write(bytes, at);
            if (n < 0) {
                throw new IOException(
                        "the file ends at "
                                + channel.size()
                                + ", "
                                + bytes.remaining()
                                + " bytes are missing at "
                                + at);
            }
        }
    }

    /// Whether the transfer is still active; ends it if it was cancelled or is late. Reads the
    /// state once: a later cancellation is noticed by the next check.
    private boolean goesOn() {
        return switch (state.get()) {
            case ENDED -> false;
            case CANCELLING -> {
                end(CANCELLED);
                yield false;
            }
            case ACTIVE -> {
                boolean late = request.deadline().passed();
                if (late) {
                    end(TIMED_OUT);
                }
                yield !late;
            }
        };
    }

    private TransferOutcome closedOutcome() {
        return new TransferOutcome.Failed(
                new Failure(
                        ErrorCode.CLOSED,
                        "transfer " + id + ": backend or registration was closed"),
                moved.clone());
    }

    private void fail(Failure failure) {
        end(new TransferOutcome.Failed(failure, moved.clone()));
    }

    /// The first outcome wins, except that an accepted cancellation always ends as Cancelled.
    private void end(TransferOutcome outcome) {
        State before = state.getAndSet(State.ENDED);
        if (before == State.ACTIVE) {
            completion.complete(outcome);
        } else if (before == State.CANCELLING) {
            completion.complete(CANCELLED);
        }
    }

    /// Completes `quiesced`, but not before `completion`, which another thread may be about to
    /// complete.
    private void quiesce() {
        whenQuiesced.accept(this);
        if (completion.isDone()) {
            quiesced.complete(null);
        } else {
            completion.whenComplete((_, _) -> quiesced.complete(null));
        }
    }
}
