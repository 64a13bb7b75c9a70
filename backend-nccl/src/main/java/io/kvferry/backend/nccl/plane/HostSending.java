// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// One transfer that leaves over a connection of its own.
///
/// Threading: [#run] on a virtual thread; the rest from any.
final class HostSending implements DataPlane.Sending {
    private final PeerAddress receiver;
    private final Grant grant;
    private final Placement source;
    private final Deadline deadline;
    private final Consumer<DataPlane.Outcome> end;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private int available;
    private int sent;
    private boolean committed;
    private boolean over;
    private @Nullable Failure givenUp;
    private @Nullable SocketChannel connection;
    private @Nullable ScheduledFuture<?> timer;

    HostSending(
            PeerAddress receiver,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<DataPlane.Outcome> end) {
        this.receiver = receiver;
        this.grant = grant;
        this.source = source;
        this.deadline = deadline;
        this.end = end;
    }

    void timer(ScheduledFuture<?> limit) {
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

    void run() {
        DataPlane.Outcome outcome;
        try {
            outcome = new DataPlane.Outcome.Done(transfer());
        } catch (KvFerryException e) {
            outcome = new DataPlane.Outcome.Failed(Failure.of(e));
        } catch (IOException e) {
            outcome =
                    new DataPlane.Outcome.Failed(
                            new Failure(ErrorCode.PEER_LOST, "receiver at " + receiver + ": " + e));
        } catch (RuntimeException | Error e) { // whoever waits for the blocks must be told
            outcome = new DataPlane.Outcome.Failed(Failure.of(e));
        }
        finish(outcome);
    }

    private long transfer() throws IOException {
        try (var channel = SocketChannel.open()) {
            adopt(channel);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            long left = TimeUnit.NANOSECONDS.toMillis(Math.max(1, deadline.remainingNanos()));
            channel.socket()
                    .connect(
                            new InetSocketAddress(receiver.host(), receiver.port()),
                            Math.clamp(left, 1, Integer.MAX_VALUE));
            HostWire.writeFully(channel, HostWire.hello(grant));
            expectGo(channel);
            var header = HostWire.buffer(HostWire.PIECE_BYTES);
            long bytes = 0;
            for (int part = 0; part < source.parts().size(); part++) {
                awaitAvailable(part);
                bytes += sendPart(channel, header, part);
                partSent();
            }
            awaitCommit();
            header.clear();
            header.putInt(HostWire.END).putInt(0).putInt(0).putInt(0).putLong(bytes).flip();
            HostWire.writeFully(channel, header);
            expectGo(channel);
            return bytes;
        }
    }

    private long sendPart(SocketChannel channel, ByteBuffer header, int index) throws IOException {
        var part = source.parts().get(index);
        for (int first = 0; first < part.count(); ) {
            int count = HostWire.pieceBlocks(part, first);
            var views = part.views(first, count);
            var piece = new ByteBuffer[views.length + 1];
            System.arraycopy(views, 0, piece, 1, views.length);
            header.clear();
            piece[0] =
                    header.putInt(index)
                            .putInt(first)
                            .putInt(count)
                            .putInt(HostWire.crc(views))
                            .putLong(count * part.blockBytes())
                            .flip();
            HostWire.writeFully(channel, piece);
            first += count;
        }
        return part.bytes();
    }

    private void expectGo(SocketChannel channel) throws IOException {
        var code = HostWire.buffer(HostWire.CODE_BYTES);
        HostWire.readFully(channel, code);
        int number = code.flip().getInt();
        if (number != 0) {
            var known = ErrorCode.ofWire(number).orElse(ErrorCode.PEER_REFUSED);
            throw new KvFerryException(
                    known, "receiver at " + receiver + " does not take the transfer: " + known);
        }
    }

    private void adopt(SocketChannel channel) {
        lock.lock();
        try {
            connection = channel;
            checkNotGivenUp();
        } finally {
            lock.unlock();
        }
    }

    private void checkNotGivenUp() {
        if (givenUp != null) {
            throw givenUp.toException();
        }
    }

    private void awaitAvailable(int part) {
        await(() -> available > part);
    }

    private void awaitCommit() {
        await(() -> committed);
    }

    @FunctionalInterface
    private interface State {
        boolean holds();
    }

    private void await(State condition) {
        lock.lock();
        try {
            while (!condition.holds()) {
                checkNotGivenUp(); // the deadline gives up too
                changed.awaitUninterruptibly();
            }
            checkNotGivenUp();
        } finally {
            lock.unlock();
        }
    }

    private void partSent() {
        change(() -> sent++);
    }

    private void change(Runnable what) {
        lock.lock();
        try {
            what.run();
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void available(int parts) {
        change(() -> available = Math.max(available, parts));
    }

    @Override
    public boolean awaitSent(int parts, Deadline limit) {
        lock.lock();
        try {
            while (sent < parts && !over && givenUp == null) {
                long left = limit.remainingNanos();
                if (left <= 0) {
                    return false;
                }
                var _ = changed.awaitNanos(left);
            }
            return sent >= parts;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void commit() {
        change(() -> {
            available = source.parts().size();
            committed = true;
        });
    }

    @Override
    public void abort() {
        giveUp(new Failure(ErrorCode.CANCELLED, "the transfer was given up"));
    }

    void giveUp(Failure why) {
        SocketChannel open;
        lock.lock();
        try {
            if (over || givenUp != null) {
                return;
            }
            givenUp = why;
            open = connection;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        if (open != null) {
            HostPlane.closeQuietly(open); // its thread says the end
        }
    }

    private void finish(DataPlane.Outcome outcome) {
        var told = outcome;
        lock.lock();
        try {
            over = true;
            if (givenUp != null && outcome instanceof DataPlane.Outcome.Failed) {
                told = new DataPlane.Outcome.Failed(givenUp);
            }
            if (timer != null) {
                timer.cancel(false);
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        end.accept(told);
    }
}
