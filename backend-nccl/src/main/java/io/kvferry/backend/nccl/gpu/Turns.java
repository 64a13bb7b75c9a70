// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.LongStream;

/// The operations on one communicator, one after the other in the order of both sides:
///
/// ```
/// queued -> enqueued on the communicator -> launched, and marked on the stream -> over
/// ```
///
/// NCCL has launched an operation only when the communicator is ready again: a mark before that
/// could be reached too early.
///
/// Threading: confined to the loop.
final class Turns {
    /// One group of operations.
    ///
    /// @param sends whether this side sends
    /// @param buffer holds the pieces one behind the other
    record Turn(boolean sends, GpuDriver.Buffer buffer, long[] pieces, long bytes) {
        static Turn of(boolean sends, GpuDriver.Buffer buffer, List<Piece> pieces) {
            long[] lengths = pieces.stream().mapToLong(Piece::bytes).toArray();
            return new Turn(sends, buffer, lengths, LongStream.of(lengths).sum());
        }
    }

    private final Communicator communicator;
    private final GpuDriver.Stream stream;
    private final Duration limit;
    private final Consumer<Turn> over;
    private final ArrayDeque<Turn> queued = new ArrayDeque<>();
    private @Nullable Turn running;
    private boolean launched;
    private Deadline deadline = Deadline.in(Duration.ZERO);

    /// @param limit of one operation
    /// @param over called after each operation
    Turns(Communicator communicator, GpuDriver.Stream stream, Duration limit, Consumer<Turn> over) {
        this.communicator = communicator;
        this.stream = stream;
        this.limit = limit;
        this.over = over;
    }

    void add(Turn turn) {
        queued.add(turn);
    }

    /// What has not begun does not begin any more.
    void clear() {
        queued.clear();
    }

    boolean idle() {
        return running == null && queued.isEmpty();
    }

    /// Moves on as far as it goes without waiting.
    ///
    /// @throws KvFerryException when an operation failed or took too long: the communicator is of
    ///   no use any more
    Pace advance() {
        while (true) {
            if (running == null) {
                running = queued.poll();
                if (running == null) {
                    return Pace.NONE;
                }
                begin(running);
            }
            if (!communicator.ready() || !hasRun(running)) {
                if (deadline.passed()) {
                    throw new KvFerryException(
                            ErrorCode.TIMEOUT,
                            "an NCCL operation did not end within " + limit.toSeconds() + " s");
                }
                return Pace.FAST;
            }
            var ended = running;
            running = null;
            over.accept(ended);
        }
    }

    private void begin(Turn turn) {
        launched = false;
        deadline = Deadline.in(limit);
        if (turn.sends) {
            stream.upload(turn.buffer, turn.bytes);
            communicator.send(turn.buffer.device(), turn.pieces, stream.handle());
        } else {
            communicator.receive(turn.buffer.device(), turn.pieces, stream.handle());
        }
    }

    private boolean hasRun(Turn turn) {
        if (!launched) {
            if (!turn.sends) {
                stream.download(turn.buffer, turn.bytes);
            }
            stream.mark();
            launched = true;
        }
        return stream.reached();
    }
}
