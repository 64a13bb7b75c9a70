// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.DataSockets;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// One data connection, blocking, with a small staging buffer in each direction.
///
/// Headers, replies and short ranges pass through the staging buffers, so that many of them share a
/// system call; what is longer than [#DIRECT_FROM] goes between socket and region without a copy.
/// Copying 32 KiB costs about a microsecond, a system call on a loopback socket several.
///
/// Threading: one thread at a time uses the connection; [#abort], [#stop] and [#expire] are for
/// others, [#condemn] and [#tick] for the watchdog.
public final class Wire implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Wire.class);
    static final int STAGING = Staging.BYTES;

    /// What the [ProcessorRoom] counts it as: not used lately, used lately, and in use. Whoever is
    /// condemned counts as in use until it is closed.
    private static final long IDLE = 0;

    private static final long RESTING = 1;
    private static final long IN_USE = 2;
    private static final long CONDEMNED = 3;
    private static final long CLOSED = 4;

    /// The bits of [#use] that hold one of these.
    private static final long KIND = 7;

    private static final long NEXT_USE = KIND + 1;

    /// Ranges from this size on bypass the staging buffers.
    static final int DIRECT_FROM = 32 << 10;

    /// What a peer that is hung up on may still send.
    private static final long LAST_BYTES = 64L << 20;

    /// How long a peer may take to read what was sent before [#stop].
    private static final Duration LONGEST_END = Duration.ofSeconds(5);

    final WireInput in;
    final WireOutput out;
    private final WireSocket socket;
    private final CallClock clock;
    private final Watchdog watchdog;
    private final ProcessorRoom processors;

    /// One of the above, and the number of the use.
    private final AtomicLong use = new AtomicLong(IDLE);

    /// Of the clock, when the watchdog looked last.
    private long marksSeen;

    private volatile boolean expired;
    private volatile boolean stoppable;
    private volatile boolean stopped;

    /// The one behind it in the list of a transfer's stopped connections, which takes no memory.
    public @Nullable Wire nextStopped;

    /// A wire is watched from here to [#close].
    public Wire(
            SocketChannel channel, EngineConfig config, Watchdog watchdog, Staging.Pair staging) {
        this(channel, config, watchdog, staging, ProcessorRoom.OF_PROCESS);
    }

    /// @param processors of which it takes one from [#begin] to [#rest]
    Wire(
            SocketChannel channel,
            EngineConfig config,
            Watchdog watchdog,
            Staging.Pair staging,
            ProcessorRoom processors) {
        this.socket = new WireSocket(channel);
        this.processors = processors;
        this.clock = new CallClock(config.stallTimeout());
        this.in =
                new WireInput(
                        socket,
                        clock,
                        staging.in(),
                        staging.calls().asSlice(0, Gathered.CALL_BYTES),
                        TimeUnit.MICROSECONDS.toNanos(config.spinMicros()),
                        processors);
        this.out =
                new WireOutput(
                        socket,
                        clock,
                        staging.out(),
                        staging.calls().asSlice(Gathered.CALL_BYTES, Gathered.CALL_BYTES));
        this.watchdog = watchdog;
        watchdog.watch(this);
    }

    /// Starts the clocks: from now on no call may stall longer than the stall limit, nor pass the
    /// deadline.
    public void begin(Deadline deadline) {
        comeIntoUse();
        clock.begin(deadline);
        in.begin();
        out.begin();
    }

    /// As [#begin], with the stall limit only, which then counts for each 64 KiB: no peer may be
    /// slower.
    public void begin() {
        comeIntoUse();
        clock.begin();
        in.begin();
        out.begin();
    }

    /// As [#begin()], with the stall limit for all calls until the next beginning together.
    void beginTogether() {
        begin();
        clock.end();
    }

    /// Stops the clocks: the connection may now rest as long as it likes.
    ///
    /// @return false when its time was up before, or it is closed: it is of no use any more
    public boolean rest() {
        clock.rest();
        long from = use.get();
        if ((from & KIND) == IN_USE) {
            if (!use.compareAndSet(from, from - IN_USE + RESTING)) {
                return false;
            }
            processors.exit();
        }
        return (from & KIND) < CONDEMNED;
    }

    /// Once until it rests, for a wire begins several times before. Others may close it, and the
    /// watchdog calls it idle.
    private void comeIntoUse() {
        long from = use.get();
        while ((from & KIND) < IN_USE) {
            long seen = use.compareAndExchange(from, (from & ~KIND) + NEXT_USE + IN_USE);
            if (seen == from) {
                processors.enter();
                if ((from & KIND) == IDLE) {
                    processors.arrive();
                }
                return;
            }
            from = seen;
        }
    }

    /// Called by the watchdog with each tick: who has rested since the last one is idle.
    void tick() {
        long marks = clock.marks();
        long from = use.get();
        if (marks != marksSeen) {
            marksSeen = marks;
        } else if ((from & KIND) == RESTING && use.compareAndSet(from, from - RESTING + IDLE)) {
            processors.leave();
        }
    }

    /// Whether the peer is on this host.
    public boolean withinHost() {
        try {
            return DataSockets.isWithinHost(socket.channel);
        } catch (IOException e) {
            return false; // closed: the next call says so
        }
    }

    /// Bytes that arrived since [#begin].
    public long received() {
        return in.received();
    }

    /// Whether any byte may have left since [#begin].
    public boolean hasSent() {
        return out.hasSent();
    }

    /// On an idle connection: whether the peer has closed it or sent unrequested bytes.
    public boolean isStale() {
        return in.isStale();
    }

    /// On an idle connection: whether the peer has sent unrequested bytes.
    public boolean hasUnasked() {
        return in.hasUnasked();
    }

    /// Whether neither direction holds bytes that the next user would mistake for its own.
    public boolean isInStep() {
        return out.isEmpty() && !in.buffered(1);
    }

    /// Called by the watchdog: whether the current use has timed out, and [#expire] must be called.
    /// A use that ends earlier is not condemned, and after a condemned use there is no other: see
    /// [#rest].
    boolean condemn(long now) {
        return condemn(now, use()); // seen before the look at the clock of that use
    }

    /// Tells one use from the next.
    long use() {
        return use.get();
    }

    /// @param seen the use that it is for
    boolean condemn(long now, long seen) {
        if (!clock.overdue(now)) {
            return false;
        }
        boolean same =
                (seen & KIND) == IN_USE
                        ? use.compareAndSet(seen, seen - IN_USE + CONDEMNED)
                        : use.get() == seen;
        if (same) {
            expired = true;
        }
        return same;
    }

    void expire() {
        expired = true;
        if (stopped) {
            abort();
        } else {
            stop();
        }
    }

    public boolean isExpired() {
        return expired;
    }

    /// The connection as [PeerAuth] sees it; the clocks must run.
    public PeerAuth.Bytes bytes() {
        return new PeerAuth.Bytes() {
            @Override
            public byte[] read(int count) throws IOException {
                var bytes = new byte[count];
                in.need(count).get(bytes);
                return bytes;
            }

            @Override
            public void write(byte[] bytes) throws IOException {
                out.room(bytes.length).put(bytes);
                out.flush();
            }
        };
    }

    /// Ends the output after a flush, and reads on for a moment, so that a last reply is not lost
    /// to a reset.
    void hangUp(long patienceNanos) throws IOException {
        out.flush();
        socket.shutdownOutput();
        clock.end(patienceNanos);
        in.drain(LAST_BYTES);
    }

    /// Ends whatever call is in progress on this connection, and what was written and has not left
    /// yet is thrown away instead of sent.
    public void abort() {
        try {
            socket.resetOnClose();
        } catch (IOException e) {
            LOG.debug("closed already, or never connected: {}", e.toString());
        } finally { // also after an OutOfMemoryError
            end();
        }
    }

    /// Sets whether [#stop] lets the peer read to the end of the stream. Only then can [#awaitEnd]
    /// wait for it.
    public void stoppable(boolean yes) {
        stoppable = yes;
    }

    /// Ends whatever is written on this connection. Where it is stoppable, the peer reads what has
    /// been written and then the end of the stream, and closes the connection when it has applied
    /// all of it, see [#awaitEnd]; it is aborted when that takes too long. Any other connection is
    /// aborted at once.
    public void stop() {
        if (!stoppable) {
            abort();
            return;
        }
        if (stopped) {
            return;
        }
        stopped = true;
        boolean ending = false;
        try {
            clock.end(LONGEST_END.toNanos());
            watchdog.watch(this); // which forgets a wire that has expired
            socket.shutdownOutput();
            ending = true;
        } catch (IOException e) {
            LOG.debug("cannot be stopped: {}", e.toString());
        } finally {
            if (!ending) { // also after an OutOfMemoryError
                abort();
            }
        }
        if (!socket.isUsable()) {
            watchdog.forget(this);
        }
    }

    public boolean isStopped() {
        return stopped;
    }

    /// Waits until the peer has closed a connection that was stopped.
    ///
    /// @return false when it has not in time, or the connection was aborted
    public boolean awaitEnd() {
        try {
            in.drain(Long.MAX_VALUE);
        } catch (EOFException e) {
            return true;
        } catch (IOException e) {
            LOG.debug("a stopped connection ends: {}", e.toString());
        }
        return socket.isUsable(); // the peer has reset it, and reads no more
    }

    private void end() {
        try {
            socket.close();
        } catch (IOException e) {
            LOG.warn("closing a socket failed: {}", e.toString()); // no way to recover
        }
    }

    @Override
    public void close() {
        try {
            end();
        } finally {
            forget();
        }
    }

    /// Unregisters this connection from the watchdog, the clock and the processor counts, even if
    /// closing failed with an OutOfMemoryError.
    private void forget() {
        watchdog.forget(this);
        clock.rest();
        long last = use.getAndSet(CLOSED) & KIND; // whoever begins after this takes no place
        if (last == IN_USE || last == CONDEMNED) {
            processors.exit();
        }
        if (last != IDLE && last != CLOSED) {
            processors.leave();
        }
    }
}
