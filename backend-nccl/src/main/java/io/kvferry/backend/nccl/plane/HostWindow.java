// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.PeerProcess;

import org.jspecify.annotations.Nullable;

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
    private final Placement target;
    private final PieceViews.Pool idle;
    private final Consumer<DataPlane.Outcome> end;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable SocketChannel connection;
    private @Nullable Failure givenUp;
    private @Nullable Future<?> timer;
    private DataPlane.@Nullable Outcome result;
    private boolean over;

    /// @param idle views of pieces
    HostWindow(Placement target, PieceViews.Pool idle, Consumer<DataPlane.Outcome> end) {
        this.target = target;
        this.idle = idle;
        this.end = end;
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

    /// A connection showed the grant: reads until all is there, and says how it ended.
    ///
    /// @param memory of the sender, where this process may copy it
    /// @return false, with nothing done, when the window is closed or another connection fills it
    boolean fill(SocketChannel channel, Optional<SenderMemory> memory) {
        if (!adopt(channel)) {
            return false;
        }
        DataPlane.Outcome outcome;
        try {
            long bytes = read(channel, memory);
            outcome = new DataPlane.Outcome.Done(bytes);
        } catch (KvFerryException e) {
            outcome = new DataPlane.Outcome.Failed(Failure.of(e));
        } catch (IOException e) {
            outcome =
                    new DataPlane.Outcome.Failed(
                            new Failure(ErrorCode.PEER_LOST, "sender is gone: " + e));
        } catch (RuntimeException | Error e) { // whoever waits for the blocks must be told
            outcome = new DataPlane.Outcome.Failed(Failure.of(e));
        }
        finish(outcome);
        return true;
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

    private static void answer(SocketChannel channel, Optional<SenderMemory> memory)
            throws IOException {
        var go = HostWire.buffer(2 * Integer.BYTES + PeerProcess.PROBE_BYTES).putInt(0);
        if (memory.isPresent()) {
            go.putInt(HostWire.WAY_COPIED).put(memory.get().token());
        } else {
            go.putInt(HostWire.WAY_SENT);
        }
        HostWire.writeFully(channel, go.flip());
    }

    private long read(SocketChannel channel, Optional<SenderMemory> memory) throws IOException {
        var views = idle.take();
        try {
            return read(channel, memory, views);
        } finally {
            idle.give(views);
        }
    }

    private long read(SocketChannel channel, Optional<SenderMemory> memory, PieceViews views)
            throws IOException {
        answer(channel, memory);
        var copied = HostWire.buffer(Integer.BYTES);
        var header = HostWire.buffer(HostWire.PIECE_BYTES);
        int parts = target.parts().size();
        var received = new int[parts];
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
                checkAll(received, total, length);
                return total;
            }
            if (part < 0
                    || part >= parts
                    || first != received[part]
                    || count < 1
                    || count > target.parts().get(part).count() - first
                    || length != count * target.parts().get(part).blockBytes()) {
                throw protocol(
                        "piece of part "
                                + part
                                + ", "
                                + count
                                + " blocks from "
                                + first
                                + " in "
                                + length
                                + " bytes fits no place of the window");
            }
            views.show(part, target.parts().get(part), first, count);
            if (memory.isPresent()) {
                memory.get().copy(channel, views);
            } else {
                views.read(channel);
            }
            if (views.crc() != crc) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT,
                        "checksum of part " + part + ", blocks from " + first + ", is wrong");
            }
            received[part] = first + count;
            total += length;
            if (memory.isPresent()) {
                HostWire.writeInt(channel, copied, 0);
            }
        }
    }

    private void checkAll(int[] received, long total, long announced) {
        for (int part = 0; part < received.length; part++) {
            if (received[part] != target.parts().get(part).count()) {
                throw protocol(
                        "the end came after "
                                + received[part]
                                + " of "
                                + target.parts().get(part).count()
                                + " blocks of part "
                                + part);
            }
        }
        if (total != announced) {
            throw protocol("the end says " + announced + " bytes, there were " + total);
        }
    }

    private static KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what);
    }

    /// The number that the sender hears: 0 when all is there.
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

    /// Bytes that came, of one that ended well.
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
                told = new DataPlane.Outcome.Failed(givenUp);
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
        giveUp(new Failure(ErrorCode.CANCELLED, "the window was withdrawn"));
    }

    @Override
    public void withdrawUnused() {
        giveUp(new Failure(ErrorCode.TIMEOUT, "no sender came in time"), true);
    }

    void giveUp(Failure why) {
        giveUp(why, false);
    }

    private void giveUp(Failure why, boolean unused) {
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
            finish(new DataPlane.Outcome.Failed(why));
        } else {
            PlanePort.closeQuietly(filling); // its thread says the end
        }
    }
}
