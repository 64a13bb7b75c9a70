// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.LinkMessage.PlaneId;
import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.backend.nccl.plane.PlanePort;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SocketChannel;
import java.security.SecureRandom;
import java.util.Optional;
import java.util.concurrent.ThreadFactory;

/// Makes the control connections of links: dials peers, and answers peers that dial. Neither end
/// sets up a communicator before the other one has proven that it knows the grant of a transfer.
///
/// Threading: the state of links belongs to the loop; each connection is dialed or greeted on its
/// own virtual thread.
final class Dialing {
    private static final Logger LOG = LoggerFactory.getLogger(Dialing.class);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final PlaneId id = new PlaneId(RANDOM.nextLong(), RANDOM.nextLong());
    private final Gpu gpu;
    private final Intake intake;
    private final OpenTransfers transfers;
    private final Links links;
    private final ThreadFactory threads;
    private final PlanePort port;

    /// Ends connections that are being dialed.
    private final Cancellation opening = new Cancellation();

    /// Of the loop.
    private long dials;

    /// Listens on a free port. The loop need not run yet.
    ///
    /// @param host announced to peers
    /// @param bindHost address that the socket listens on
    /// @param threads creates a thread for each dial
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    Dialing(
            String host,
            String bindHost,
            Gpu gpu,
            Intake intake,
            OpenTransfers transfers,
            Links links,
            ThreadFactory threads) {
        this.gpu = gpu;
        this.intake = intake;
        this.transfers = transfers;
        this.links = links;
        this.threads = threads;
        this.port = PlanePort.open(gpu.name(), host, bindHost, gpu.clock(), this::came);
    }

    String address() {
        return port.address().toString();
    }

    /// Takes and makes no connections any more, and ends those that are being made.
    void close() {
        port.close();
        opening.cancel(ErrorCode.CLOSED);
    }

    // ---- dialing

    /// Starts to dial, or drops a link that is no longer needed. On the loop.
    void dial(Link link) {
        var first = link.sender().first();
        if (first == null) {
            link.drop();
            return;
        }
        var target = PeerAddress.parse(link.peer()).orElseThrow();
        var hello =
                new LinkMessage.Hello(
                        id,
                        ++dials,
                        address(),
                        gpu.limits().slotBytes(),
                        first.proof().name(),
                        GrantProof.nonce());
        try {
            threads.newThread(() -> dial(link, first, target, hello)).start();
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            link.fail(Failure.of(e));
        }
    }

    private void dial(Link link, NcclSending first, PeerAddress target, LinkMessage.Hello hello) {
        SocketChannel channel = null;
        try {
            channel = SocketChannel.open();
            var connection = channel;
            opening.begin(connection);
            var limit =
                    gpu.clock()
                            .after(gpu.limits().setUp(), () -> PlanePort.closeQuietly(connection));
            try {
                connect(connection, target);
                LinkSocket.writeMessage(connection, hello);
                var answer = LinkSocket.readMessage(connection);
                if (answer instanceof LinkMessage.Welcome refusal && refusal.code() != 0) {
                    gpu.post(() -> refused(link, first, connection, refusal.code()));
                    return;
                }
                var nonces = exchangeProofs(connection, first, target, hello.nonce(), answer);
                if (!(LinkSocket.readMessage(connection) instanceof LinkMessage.Welcome welcome)) {
                    throw LinkMessage.protocol("no welcome from " + target);
                }
                gpu.post(() -> welcomed(link, first, connection, nonces, welcome));
            } finally {
                limit.cancel(false);
                opening.end(connection);
            }
        } catch (KvFerryException e) {
            notDialed(link, channel, Failure.of(e));
        } catch (IOException e) {
            notDialed(
                    link,
                    channel,
                    new Failure(ErrorCode.PEER_LOST, "receiver at " + target + ": " + e));
        } catch (RuntimeException | Error e) { // any failure must end the link
            notDialed(link, channel, Failure.of(e));
        }
    }

    /// @throws KvFerryException [ErrorCode#PEER_REFUSED] where the answer does not prove that
    ///   whoever gave it knows the grant
    private static LinkNonces exchangeProofs(
            SocketChannel channel,
            NcclSending first,
            PeerAddress target,
            byte[] nonce,
            LinkMessage answer)
            throws IOException {
        if (answer instanceof LinkMessage.Challenge(var theirs, var shown)) {
            var nonces = new LinkNonces(nonce, theirs);
            if (nonces.provesReceiver(first.proof(), shown)) {
                LinkSocket.writeMessage(
                        channel, new LinkMessage.Proof(nonces.ofSender(first.proof())));
                return nonces;
            }
        }
        throw LinkMessage.unproven(target.toString());
    }

    private void connect(SocketChannel channel, PeerAddress target) throws IOException {
        var limit = Deadline.in(gpu.limits().setUp());
        var address = HostNames.SYSTEM.addresses(target.host(), limit, opening)[0];
        DataSockets.connect(
                channel,
                new InetSocketAddress(address, target.port()),
                Math.clamp(limit.remaining().toMillis(), 1, Integer.MAX_VALUE));
    }

    private void notDialed(Link link, @Nullable SocketChannel channel, Failure why) {
        if (channel != null) {
            PlanePort.closeQuietly(channel);
        }
        gpu.post(() -> {
            if (link.dialing()) {
                link.fail(why);
            }
        });
    }

    private void welcomed(
            Link link,
            NcclSending first,
            SocketChannel channel,
            LinkNonces nonces,
            LinkMessage.Welcome welcome) {
        if (welcome.code() != 0) {
            refused(link, first, channel, welcome.code());
        } else if (link.dialing()) {
            link.dialed(new LinkSocket(gpu.name() + "-link", channel), nonces, welcome);
        } else { // the peer's dial came first, or the link has ended
            PlanePort.closeQuietly(channel);
        }
    }

    private void refused(Link link, NcclSending first, SocketChannel channel, int wireCode) {
        PlanePort.closeQuietly(channel);
        if (!link.dialing()) {
            return;
        }
        var code = ErrorCode.ofWire(wireCode).orElse(ErrorCode.PEER_REFUSED);
        var why = new Failure(code, "receiver at " + link.peer() + " refuses: " + code);
        if (code == ErrorCode.ALREADY_ACTIVE) {
            link.yield();
        } else if (code == ErrorCode.NOT_FOUND) { // says nothing about the other sendings
            first.giveUp(why);
            dial(link);
        } else {
            link.fail(why);
        }
    }

    // ---- being dialed

    private void came(PlanePort here, SocketChannel channel) {
        var _ = Thread.ofVirtual().name(gpu.name() + "-greet").start(() -> greet(here, channel));
    }

    /// A peer that has proven that it knows the grant of an open window.
    private record Caller(LinkMessage.Hello hello, LinkNonces nonces) {}

    /// Only who knows the grant of an open window is heard.
    private void greet(PlanePort here, SocketChannel channel) {
        boolean passed = false;
        try {
            var caller = here.hear(channel, () -> meet(channel));
            if (caller.isPresent()) {
                passed = true;
                gpu.post(() -> greeted(channel, caller.get().hello(), caller.get().nonces()));
            }
        } catch (IOException | KvFerryException e) {
            LOG.debug("{}: a connection ends: {}", gpu.name(), e.toString());
        } finally {
            here.left(channel);
            if (!passed) {
                PlanePort.closeQuietly(channel);
            }
        }
    }

    /// Empty where it was refused.
    private Optional<Caller> meet(SocketChannel channel) throws IOException {
        if (!(readFirst(channel) instanceof LinkMessage.Hello hello)) {
            return Optional.empty();
        }
        var window = transfers.find(hello.grant());
        boolean fits = PeerAddress.parse(hello.address()).isPresent() && hello.slotBytes() >= 1;
        if (window == null || !fits) {
            return refuse(channel, ErrorCode.NOT_FOUND);
        }
        var refusal = intake.refusal();
        if (refusal != null) {
            return refuse(channel, refusal.code());
        }
        var nonces = new LinkNonces(GrantProof.nonce(), hello.nonce());
        LinkSocket.writeMessage(
                channel,
                new LinkMessage.Challenge(nonces.own(), nonces.ofReceiver(window.proof())));
        if (!(LinkSocket.readMessage(channel) instanceof LinkMessage.Proof(var shown))) {
            return Optional.empty();
        }
        return nonces.provesSender(window.proof(), shown)
                ? Optional.of(new Caller(hello, nonces))
                : refuse(channel, ErrorCode.PEER_REFUSED);
    }

    private LinkMessage readFirst(SocketChannel channel) throws IOException {
        try {
            return LinkSocket.readMessage(channel);
        } catch (KvFerryException e) {
            if (e.code() == ErrorCode.INCOMPATIBLE) { // the peer finds this side's version in it
                var _ = refuse(channel, ErrorCode.INCOMPATIBLE);
            }
            throw e;
        }
    }

    private Optional<Caller> refuse(SocketChannel channel, ErrorCode code) throws IOException {
        LinkSocket.writeMessage(
                channel, new LinkMessage.Welcome(id, code.wire(), 0, gpu.limits().slotBytes()));
        return Optional.empty();
    }

    private LinkMessage.Welcome welcome(int code) {
        return new LinkMessage.Welcome(id, code, dials, gpu.limits().slotBytes());
    }

    /// A peer dialed. Where both dial at once, the dial of the lower plane id counts.
    private void greeted(SocketChannel channel, LinkMessage.Hello hello, LinkNonces nonces) {
        var socket = new LinkSocket(gpu.name() + "-link", channel);
        var link = links.find(hello.address());
        if (intake.closed() || link == null && links.full()) {
            refuse(socket, intake.closed() ? ErrorCode.CLOSED : ErrorCode.BACKPRESSURE);
            return;
        }
        if (hello.plane().equals(id)) {
            refuse(socket, ErrorCode.UNSUPPORTED); // NCCL has no two ranks on one GPU
            return;
        }
        boolean mineCounts =
                link != null
                        && (link.dialing() && id.compareTo(hello.plane()) < 0
                                || link.outdates(hello));
        if (mineCounts) {
            refuse(socket, ErrorCode.ALREADY_ACTIVE);
            return;
        }
        if (link != null && !link.dialing() && !link.yielded()) {
            link.fail(new Failure(ErrorCode.PEER_LOST, "the peer has made a new link"));
            link = null;
        }
        if (link == null) {
            link = links.add(hello.address());
        }
        socket.send(welcome(0));
        link.answered(socket, nonces, hello.slotBytes());
    }

    private void refuse(LinkSocket socket, ErrorCode code) {
        socket.sendLast(welcome(code.wire()));
    }
}
