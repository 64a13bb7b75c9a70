// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.spi.Deadline;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.StandardSocketOptions;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/// One data connection, blocking, with a small staging buffer in each direction.
///
/// Headers, replies and short ranges pass through the staging buffers, so that many of them share a
/// system call; what is longer than [#DIRECT_FROM] goes between socket and region without a copy.
/// Copying 32 KiB costs about a microsecond, a system call on a loopback socket several.
///
/// Threading: one thread at a time uses the connection; [#abort], [#expire] and [#overdue] are for
/// others.
public final class Wire implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Wire.class);
    static final int STAGING = Staging.BYTES;

    /// Ranges from this size on bypass the staging buffers.
    static final int DIRECT_FROM = 32 << 10;

    /// What a peer that is hung up on may still send.
    private static final long LAST_BYTES = 64L << 20;

    final WireInput in;
    final WireOutput out;
    private final SocketChannel channel;
    private final CallClock clock;
    private final Watchdog watchdog;
    private volatile boolean expired;

    /// A wire is watched from here to [#close].
    public Wire(
            SocketChannel channel, EngineConfig config, Watchdog watchdog, Staging.Pair staging) {
        this.channel = channel;
        this.clock = new CallClock(config.stallTimeout());
        this.in =
                new WireInput(
                        channel,
                        clock,
                        staging.in(),
                        TimeUnit.MICROSECONDS.toNanos(config.spinMicros()));
        this.out = new WireOutput(channel, clock, staging.out());
        this.watchdog = watchdog;
        watchdog.watch(this);
    }

    /// Starts the clocks: from now on no call may stall longer than the stall limit, nor pass the
    /// deadline.
    public void begin(Deadline deadline) {
        clock.begin(deadline);
        in.begin();
        out.begin();
    }

    /// As [#begin], with the stall limit only.
    public void begin() {
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
    public void rest() {
        clock.rest();
    }

    /// Whether the peer is on this host.
    public boolean withinHost() {
        try {
            return SocketBuffers.withinHost(channel);
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

    /// Of a resting connection: whether the peer has closed it, or sent what nobody asked for.
    public boolean isStale() {
        return in.isStale();
    }

    /// Of a resting connection: whether the peer has sent what nobody asked for.
    public boolean hasUnasked() {
        return in.hasUnasked();
    }

    boolean overdue(long now) {
        return clock.overdue(now);
    }

    void expire() {
        expired = true;
        abort();
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
        channel.shutdownOutput();
        clock.end(patienceNanos);
        in.drain(LAST_BYTES);
    }

    /// Ends whatever call is in progress on this connection, and what was written and has not left
    /// yet is thrown away instead of sent.
    public void abort() {
        try {
            channel.setOption(StandardSocketOptions.SO_LINGER, 0);
        } catch (IOException e) {
            LOG.debug("closed already, or never connected: {}", e.toString());
        }
        end();
    }

    private void end() {
        try {
            channel.close();
        } catch (IOException e) {
            throw new IllegalStateException("closing a socket failed", e);
        }
    }

    @Override
    public void close() {
        watchdog.forget(this);
        rest();
        end();
    }
}
