// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.crossmemory.PeerProcess;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// A window of the host data plane: open, then filled by one connection, then over.
///
/// Threading: any thread; [#fill] on the connection's.
final class HostWindow implements DataPlane.Window {
    private static final Logger LOG = LoggerFactory.getLogger(HostWindow.class);

    // Made ahead, for where there is no memory.

    private static final DataPlane.Outcome.Failed NOT_DESCRIBED =
            failed(ErrorCode.NO_MEMORY, "no memory to describe why the transfer failed");

    private static final DataPlane.Outcome.Failed WITHDRAWN =
            failed(ErrorCode.CANCELLED, "the window was withdrawn");

    private static final DataPlane.Outcome.Failed UNUSED =
            failed(ErrorCode.TIMEOUT, "no sender came in time");

    private final Placement target;
    private final PieceViews.Pool idle;
    private final Consumer<DataPlane.Outcome> end;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable SocketChannel connection;
    private DataPlane.Outcome.@Nullable Failed givenUp;
    private @Nullable Future<?> timer;
    private DataPlane.@Nullable Outcome result;
    private boolean over;

    /// @param idle views of pieces
    HostWindow(Placement target, PieceViews.Pool idle, Consumer<DataPlane.Outcome> end) {
        this.target = target;
        this.idle = idle;
        this.end = end;
    }

    private static DataPlane.Outcome.Failed failed(ErrorCode code, String text) {
        return new DataPlane.Outcome.Failed(new Failure(code, text));
    }

    void timer(Future<?> limit) {
        lock.lock();
        try {
            timer = limit;
            if (over) {
                limit.cancel(false);
            }
        } finally {
            lock.unlock();
        }
    }

    /// A connection proved that it knows the grant: reads until all is there, and says how it
    /// ended.
    ///
    /// @param memory of the sender, where this process may copy it
    /// @param sums whether the pieces carry checksums
    /// @return false, with nothing done, when the window is closed or another connection fills it
    boolean fill(SocketChannel channel, Optional<SenderMemory> memory, boolean sums) {
        if (!adopt(channel)) {
            return false;
        }
        DataPlane.Outcome outcome = NOT_DESCRIBED;
        try {
            outcome = take(channel, memory, sums);
        } catch (RuntimeException | Error e) { // any failure must end the transfer
            LoopReport.WARN.log(LOG, "a window has failed", e);
        }
        finish(outcome);
        return true;
    }

    private DataPlane.Outcome take(
            SocketChannel channel, Optional<SenderMemory> memory, boolean sums) {
        try {
            return new DataPlane.Outcome.Done(read(channel, memory, sums));
        } catch (IOException e) {
            return failed(ErrorCode.PEER_LOST, "sender is gone: " + e);
        } catch (RuntimeException | Error e) {
            return new DataPlane.Outcome.Failed(Failure.of(e));
        }
    }

    private boolean adopt(SocketChannel channel) {
        lock.lock();
        try {
            if (over || givenUp != null || connection != null) {
                return false;
            }
            connection = channel;
            return true;
        } finally {
            lock.unlock();
        }
    }

    private static void answer(SocketChannel channel, Optional<SenderMemory> memory, boolean sums)
            throws IOException {
        var go = HostWire.buffer(HostWire.GO_BYTES + PeerProcess.PROBE_BYTES).putInt(0);
        go.putInt(memory.isPresent() ? HostWire.WAY_COPIED : HostWire.WAY_SENT);
        go.putInt(sums ? 1 : 0);
        memory.ifPresent(sender -> go.put(sender.token()));
        HostWire.writeFully(channel, go.flip());
    }

    private long read(SocketChannel channel, Optional<SenderMemory> memory, boolean sums)
            throws IOException {
        answer(channel, memory, sums);
        var views = idle.take();
        try {
            return read(channel, memory, sums, views);
        } finally {
            idle.give(views);
        }
    }

    private long read(
            SocketChannel channel, Optional<SenderMemory> memory, boolean sums, PieceViews views)
            throws IOException {
        var copied = HostWire.buffer(Integer.BYTES);
        var header = HostWire.buffer(HostWire.PIECE_BYTES);
        var place = new Place(target);
        long total = 0;
        while (true) {
            header.clear();
            HostWire.readFully(channel, header);
            header.flip();
            int part = header.getInt();
            int first = header.getInt();
            int count = header.getInt();
            int crc = header.getInt();
            long length = header.getLong();
            if (part == HostWire.END) {
                checkAll(place, total, length);
                return total;
            }
            if (place.isEnd()
                    || part != place.part()
                    || first != place.first()
                    || count < 1
                    || count > place.current().count() - first
                    || length != count * place.current().blockBytes()) {
                throw protocol(
                        "piece of part %d, %d blocks from %d in %d bytes, does not fit at %s"
                                .formatted(part, count, first, length, place));
            }
            views.resetSum();
            if (memory.isPresent()) {
                views.show(part, place.current(), first, count);
                memory.get().copy(channel, views);
                place.advance(count);
                if (sums) {
                    views.sum();
                }
            } else {
                readPiece(channel, place, count, sums, views);
            }
            if (sums && views.crc() != crc) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT,
                        "checksum of part " + part + ", blocks from " + first + ", is wrong");
            }
            total += length;
            if (memory.isPresent()) {
                HostWire.writeInt(channel, copied, 0);
            }
        }
    }

    private static void readPiece(
            SocketChannel channel, Place place, int count, boolean sums, PieceViews views)
            throws IOException {
        for (int left = count; left > 0; ) {
            int blocks = place.shown(left);
            views.show(place.part(), place.current(), place.first(), blocks);
            views.read(channel);
            if (sums) {
                views.sum();
            }
            place.advance(blocks);
            left -= blocks;
        }
    }

    private static void checkAll(Place place, long total, long announced) {
        if (!place.isEnd()) {
            throw protocol("the end came before " + place);
        }
        if (total != announced) {
            throw protocol("the end says " + announced + " bytes, there were " + total);
        }
    }

    private static KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what);
    }

    /// The result code for the sender: 0 when everything has arrived.
    int code() {
        lock.lock();
        try {
            return result instanceof DataPlane.Outcome.Failed(var failure)
                    ? failure.code().wire()
                    : result == null ? ErrorCode.INTERNAL.wire() : 0;
        } finally {
            lock.unlock();
        }
    }

    /// Whether its blocks have addresses, which the kernel needs to copy into them.
    boolean isNative() {
        return target.parts().stream().allMatch(part -> part.segment().isNative());
    }

    /// Bytes of the whole transfer; valid after a successful end.
    long bytes() {
        return target.bytes();
    }

    private void finish(DataPlane.Outcome outcome) {
        var told = outcome;
        lock.lock();
        try {
            if (over) {
                return;
            }
            over = true;
            if (givenUp != null && outcome instanceof DataPlane.Outcome.Failed) {
                told = givenUp;
            }
            result = told;
            if (timer != null) {
                timer.cancel(false);
            }
        } finally {
            lock.unlock();
        }
        end.accept(told);
    }

    @Override
    public void withdraw() {
        giveUp(WITHDRAWN);
    }

    @Override
    public void withdrawUnused() {
        giveUp(UNUSED, true);
    }

    void giveUp(DataPlane.Outcome.Failed why) {
        giveUp(why, false);
    }

    private void giveUp(DataPlane.Outcome.Failed why, boolean unused) {
        SocketChannel filling;
        lock.lock();
        try {
            if (over || givenUp != null || unused && connection != null) {
                return;
            }
            givenUp = why;
            filling = connection;
        } finally {
            lock.unlock();
        }
        if (filling == null) {
            finish(why);
        } else {
            PlanePort.closeQuietly(filling); // its thread says the end
        }
    }
}
