// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.DataSockets;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// The data plane over host memory: a TCP connection for each transfer, gathered straight from the
/// sender's blocks and scattered straight into the receiver's, with a CRC32C over each piece where
/// one of the two wants that, see [Checksum].
///
/// Between two processes of one host and one user the blocks do not go over the connection: the
/// receiver has the kernel copy them out of the sender's memory (`process_vm_readv`). The sender
/// offers that where both ends of the connection have one address; the receiver takes it where the
/// sender is in its pid namespace, of its user, and readable, and where a token that the receiver
/// draws for each transfer appears in the memory of that process. Else the blocks come over TCP.
///
/// Threading: any thread; a virtual thread for each connection that has named no grant yet, and one
/// platform thread for each transfer: where a virtual one waits for its socket, Java allocates and
/// another thread works, for each piece.
public final class HostPlane implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(HostPlane.class);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);
    private static final ThreadFactory HANDSHAKES = Thread.ofVirtual().factory();

    private final String name;
    private final boolean copies;
    private final Checksum checksum;
    private final ThreadFactory threads;
    private final Duration closeLimit;
    private final PlaneClock clock;
    private final PlanePort port;

    /// Those that have not ended.
    private final Map<GrantProof.Name, Expected> windows = new ConcurrentHashMap<>();

    private final Set<HostSending> sendings = ConcurrentHashMap.newKeySet();
    private final PieceViews.Pool views = new PieceViews.Pool();
    private final AtomicInteger working = new AtomicInteger();
    private final LongAdder bytesSent = new LongAdder();
    private final LongAdder bytesCopied = new LongAdder();
    private volatile boolean closed;

    /// How the bytes of a transfer may go.
    public enum Ways {
        /// Over TCP, on one host too.
        TCP,
        /// Copied by the kernel within one host, else over TCP.
        ANY
    }

    /// When bytes are summed on their way. A peer that wants it has it.
    public enum Checksum {
        /// Between hosts. Within one the kernel copies from memory to memory, and the sum would
        /// cost more than that.
        AUTO,
        ALWAYS,
        NEVER;

        /// @param withinHost whether both ends of the connection are on this host
        boolean covers(boolean withinHost) {
            return this == ALWAYS || this == AUTO && !withinHost;
        }
    }

    private HostPlane(
            String name,
            String host,
            String bindHost,
            Ways ways,
            Checksum checksum,
            ThreadFactory threads,
            PlaneClock clock,
            Duration closeLimit) {
        this.name = name;
        this.copies = ways == Ways.ANY;
        this.checksum = checksum;
        this.threads = threads;
        this.closeLimit = closeLimit;
        this.clock = clock;
        try {
            this.port = PlanePort.open(name, host, bindHost, clock, this::came);
        } catch (RuntimeException | Error e) {
            clock.close();
            throw e;
        }
    }

    /// Listens on a free port.
    ///
    /// @param host announced to peers
    /// @param bindHost address that the socket listens on
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    public static HostPlane open(String name, String host, String bindHost, Ways ways) {
        return open(name, host, bindHost, ways, Checksum.AUTO);
    }

    /// As [#open(String, String, String, Ways)].
    public static HostPlane open(
            String name, String host, String bindHost, Ways ways, Checksum checksum) {
        var threads = Thread.ofPlatform().daemon(true).name(name + "-transfer-", 0).factory();
        var clock = new PlaneClock(name + "-clock");
        return new HostPlane(name, host, bindHost, ways, checksum, threads, clock, CLOSE_LIMIT);
    }

    /// As [#open(String, String, String, Ways)].
    ///
    /// @param threads make a thread for each transfer
    public static HostPlane open(
            String name, String host, String bindHost, Ways ways, ThreadFactory threads) {
        return open(
                name, host, bindHost, ways, threads, new PlaneClock(name + "-clock"), CLOSE_LIMIT);
    }

    /// As [#open(String, String, String, Ways, ThreadFactory)].
    ///
    /// @param clock closed with the plane
    /// @param closeLimit how long [#close] waits for threads that use blocks
    static HostPlane open(
            String name,
            String host,
            String bindHost,
            Ways ways,
            ThreadFactory threads,
            PlaneClock clock,
            Duration closeLimit) {
        return new HostPlane(name, host, bindHost, ways, Checksum.AUTO, threads, clock, closeLimit);
    }

    @Override
    public String kind() {
        return "host";
    }

    @Override
    public String address() {
        return port.address().toString();
    }

    @Override
    public Map<String, Long> takeReceived() {
        return Map.of("tcp", bytesSent.sumThenReset(), "copy", bytesCopied.sumThenReset());
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var proof = new GrantProof(grant);
        var window =
                new HostWindow(
                        target,
                        views,
                        outcome -> {
                            if (windows.remove(proof.name()) != null) {
                                end.accept(outcome);
                            }
                        });
        try {
            windows.put(proof.name(), new Expected(proof, window)); // before its end can remove it
            var late = late("filled"); // there may be no memory for it then
            window.timer(clock.after(deadline.remaining(), () -> window.giveUp(late)));
        } catch (RuntimeException | Error e) { // no memory for the clock's thread, for one
            // The grant was never sent. A timer that was already set has no effect.
            windows.remove(proof.name());
            throw e;
        }
        if (closed) {
            window.giveUp(closedFailure());
        }
        return window;
    }

    @Override
    public Sending send(
            String receiver,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var target =
                PeerAddress.parse(receiver)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.PROTOCOL, "not an address: " + receiver));
        var sending =
                new HostSending(target, grant, source, copies, checksum, views, deadline, end);
        try {
            var late = late("sent"); // as above
            var limit = clock.after(deadline.remaining(), () -> sending.giveUp(late));
            sending.timer(limit);
            try {
                sendings.add(sending);
                start(threads, sending::run, () -> sendings.remove(sending));
            } catch (RuntimeException | Error e) {
                sendings.remove(sending);
                limit.cancel(false);
                throw e;
            }
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            throw Failure.of(e).toException();
        }
        if (closed) {
            sending.giveUp(closedFailure());
        }
        return sending;
    }

    private Outcome.Failed late(String what) {
        return new Outcome.Failed(
                new Failure(ErrorCode.TIMEOUT, name + ": not " + what + " within its time limit"));
    }

    private Outcome.Failed closedFailure() {
        return new Outcome.Failed(new Failure(ErrorCode.CLOSED, name + " is closed"));
    }

    /// Runs it on a thread of its own, counted until `after` has run.
    private void start(ThreadFactory from, Runnable work, Runnable after) {
        working.incrementAndGet();
        boolean begun = false;
        try {
            from.newThread(
                            () -> {
                                try {
                                    work.run();
                                } finally {
                                    after.run();
                                    working.decrementAndGet();
                                }
                            })
                    .start();
            begun = true;
        } finally {
            if (!begun) {
                working.decrementAndGet();
            }
        }
    }

    private void came(PlanePort here, SocketChannel connection) {
        start(HANDSHAKES, () -> meet(here, connection), () -> {});
    }

    /// An open window, and what its sender has to know.
    private record Expected(GrantProof proof, HostWindow window) {}

    /// What a sender says first.
    private record Hello(GrantProof.Name name, byte[] nonce) {}

    /// Reads which grant a connection names. A connection with an unknown grant gets no platform
    /// thread.
    private void meet(PlanePort here, SocketChannel channel) {
        boolean served = false;
        try {
            var hello = here.listen(channel, () -> readHello(channel));
            if (hello.isEmpty()) {
                answer(channel, ErrorCode.INCOMPATIBLE.wire());
                return;
            }
            var expected = windows.get(hello.get().name());
            if (expected == null) {
                answer(channel, ErrorCode.NOT_FOUND.wire());
                return;
            }
            start(
                    threads,
                    () -> serve(here, channel, expected, hello.get().nonce()),
                    () -> here.left(channel));
            served = true;
        } catch (IOException | RuntimeException | Error e) { // no memory for a thread, for one
            LOG.debug("{}: a connection ends: {}", name, e.toString());
        } finally {
            if (!served) {
                here.left(channel);
                PlanePort.closeQuietly(channel);
            }
        }
    }

    private void serve(PlanePort here, SocketChannel channel, Expected expected, byte[] nonce) {
        try (channel) {
            DataSockets.boundBuffers(channel, 0);
            var process =
                    here.hear(channel, () -> exchangeProofs(channel, expected.proof(), nonce));
            if (process.isEmpty()) {
                answer(channel, ErrorCode.PEER_REFUSED.wire());
                return;
            }
            var window = expected.window();
            boolean wantsSums = process.get().getInt(Integer.BYTES) != 0;
            var memory =
                    copies && window.isNative()
                            ? SenderMemory.of(process.get())
                            : Optional.<SenderMemory>empty();
            boolean sums = wantsSums || checksum.covers(DataSockets.isWithinHost(channel));
            if (!window.fill(channel, memory, sums)) {
                answer(channel, ErrorCode.NOT_FOUND.wire());
                return;
            }
            if (window.code() == 0) {
                (memory.isPresent() ? bytesCopied : bytesSent).add(window.bytes());
            }
            answer(channel, window.code());
        } catch (IOException | RuntimeException | Error e) { // ends this connection only
            LOG.debug("{}: a connection ends: {}", name, e.toString());
        }
    }

    /// What the sender says of itself as a process; empty where it does not know the grant.
    private static Optional<ByteBuffer> exchangeProofs(
            SocketChannel channel, GrantProof proof, byte[] theirs) throws IOException {
        var nonce = GrantProof.nonce();
        HostWire.writeFully(channel, HostWire.challenge(nonce, proof.ofReceiver(theirs, nonce)));
        var answer = HostWire.buffer(GrantProof.PROOF_BYTES + HostWire.PROCESS_BYTES);
        HostWire.readFully(channel, answer);
        var shown = HostWire.bytes(answer.flip(), GrantProof.PROOF_BYTES);
        return proof.isOfSender(shown, theirs, nonce)
                ? Optional.of(answer.slice().order(answer.order()))
                : Optional.empty();
    }

    private static void answer(SocketChannel channel, int code) throws IOException {
        HostWire.writeInt(channel, HostWire.buffer(Integer.BYTES), code);
    }

    /// Empty where the connection does not speak this protocol. A read of the channel on a virtual
    /// thread would keep the socket from ever blocking: each later read that waits would cost two
    /// more calls of the kernel. One with a time limit does not.
    private Optional<Hello> readHello(SocketChannel channel) throws IOException {
        channel.socket().setSoTimeout((int) PlanePort.HELLO_LIMIT.toMillis());
        var in = channel.socket().getInputStream();
        var protocol = read(in, 2 * Integer.BYTES);
        if (protocol.getInt() != HostWire.MAGIC) {
            return Optional.empty();
        }
        int version = protocol.getInt();
        // Of any version: a peer may not hear the answer where it has said more than was read.
        var hello = read(in, HostWire.HELLO_BYTES - 2 * Integer.BYTES);
        if (version != HostWire.VERSION) {
            LOG.warn("{}: a peer speaks version {} of the data plane", name, version);
            return Optional.empty();
        }
        var name = new GrantProof.Name(hello.getLong(), hello.getLong());
        return Optional.of(new Hello(name, HostWire.bytes(hello, GrantProof.NONCE_BYTES)));
    }

    private static ByteBuffer read(InputStream in, int bytes) throws IOException {
        var read = in.readNBytes(bytes);
        if (read.length < bytes) {
            throw new EOFException("ends within its hello");
        }
        return HostWire.buffer(bytes).put(read).flip();
    }

    /// Connections that have proven no grant yet.
    int handshakes() {
        return port.handshakes();
    }

    /// Windows that have not ended.
    int openWindows() {
        return windows.size();
    }

    /// Connections that have a thread, of either kind.
    int working() {
        return working.get();
    }

    @Override
    public void close() {
        closed = true;
        port.close();
        windows.values().forEach(expected -> expected.window().giveUp(closedFailure()));
        sendings.forEach(sending -> sending.giveUp(closedFailure()));
        var limit = Deadline.in(closeLimit);
        while (working.get() > 0 && !limit.passed()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
        clock.close();
        if (working.get() > 0) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "%s: %d connections still use blocks after %s"
                            .formatted(name, working.get(), closeLimit));
        }
    }
}
