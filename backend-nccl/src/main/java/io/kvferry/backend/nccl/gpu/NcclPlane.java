// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.backend.nccl.gpu.LinkMessage.PlaneId;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneClock;
import io.kvferry.backend.nccl.plane.PlanePort;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.RecentMap;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SocketChannel;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.stream.Stream;

/// The data plane over NCCL: one [Link] for each peer, made at the first transfer and kept.
///
/// Blocks in host memory go by way of the GPU: gathered into pinned memory, copied to the device,
/// sent, copied back and scattered on the other side, with a CRC32C over each piece from the
/// sender's blocks to the receiver's. NCCL writes into buffers of the plane only; so a window can
/// be closed at any time, and its blocks are quiet from then on, whatever the communicator still
/// does.
///
/// Threading: any thread. A [GpuLoop] has the state and calls NCCL; copies run on virtual threads;
/// aborts, which may take long, on a thread each.
///
/// Where a call of NCCL or of the driver does not return, all transfers end with TIMEOUT after the
/// limit of a turn, the communicator that the call is for is aborted, and [#trouble] says so: until
/// the call returns nothing more is taken. No such call touches blocks.
public final class NcclPlane implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(NcclPlane.class);
    static final int MOST_LINKS = 256;

    /// Looks at the thread of the GPU within one limit of a turn.
    private static final int LOOKS = 8;

    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final String name;
    private final PlaneId id = new PlaneId(RANDOM.nextLong(), RANDOM.nextLong());
    private final NcclLibrary library;
    private final GpuDriver driver;
    private final Limits limits;
    private final GpuLoop loop;
    private final PlaneClock clock;
    private final PlanePort port;
    private final Map<Grant, NcclWindow> windows = new ConcurrentHashMap<>();
    private final Map<String, Deadline> refused =
            Collections.synchronizedMap(new RecentMap<>(1024));

    /// Connections that are being dialed.
    private final Set<SocketChannel> opening = ConcurrentHashMap.newKeySet();

    /// Sendings, windows, links and their memory that have not ended.
    private final AtomicInteger open = new AtomicInteger();

    /// Links that are over, whose memory is being freed.
    private final AtomicInteger freeing = new AtomicInteger();

    /// The communicator that the loop's thread is in a call of.
    private final AtomicReference<@Nullable Communicator> calling = new AtomicReference<>();

    private final Set<LinkSocket> sockets = ConcurrentHashMap.newKeySet();

    private volatile boolean closed;

    /// While a call of the loop's thread does not return.
    private volatile @Nullable Failure hung;

    /// Of the loop.
    private final Map<String, Link> links = new HashMap<>();

    private long dials;

    /// All that are not over, also those that take no more transfers.
    private Link[] watched = {};

    private final Set<NcclSending> sendings = ConcurrentHashMap.newKeySet();

    /// Those that have not ended, also those of which a sender has shown the grant.
    private final Set<NcclWindow> openWindows = ConcurrentHashMap.newKeySet();

    /// @param slotBytes of a batch, and of each buffer: a link has at most two, one per direction
    /// @param setUp for a link to be made
    /// @param turn for one batch to be answered, and for one to be moved
    /// @param avoided after a link could not be made, found no room, or failed, [#refuses] says so
    ///   for this long
    /// @param channels of NCCL for each communicator, 0 for its default
    public record Limits(
            long slotBytes, Duration setUp, Duration turn, Duration avoided, int channels) {
        public static Limits standard(int channels) {
            return new Limits(
                    8 << 20,
                    Duration.ofSeconds(30),
                    Duration.ofSeconds(30),
                    Duration.ofSeconds(60),
                    channels);
        }
    }

    private NcclPlane(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits) {
        this.name = name;
        this.library = library;
        this.driver = driver;
        this.limits = limits;
        this.clock = new PlaneClock(name + "-clock");
        this.loop = new GpuLoop(name + "-gpu", driver::bind, this::look);
        try {
            this.port = PlanePort.open(name, host, bindHost, clock, this::came);
        } catch (RuntimeException | Error e) {
            clock.close();
            throw e;
        }
        loop.start();
        clock.every(limits.turn().dividedBy(LOOKS), this::lookAfterLoop);
    }

    /// Listens on a free port.
    ///
    /// @param host what peers are told
    /// @param bindHost what the socket listens on
    /// @param driver closed with the plane
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    public static NcclPlane open(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits) {
        return new NcclPlane(name, host, bindHost, library, driver, limits);
    }

    @Override
    public String kind() {
        return "nccl";
    }

    @Override
    public String address() {
        return port.address().toString();
    }

    @Override
    public Optional<String> trouble() {
        return Optional.ofNullable(hung).map(Failure::message);
    }

    @Override
    public boolean refuses(String peer) {
        if (hung != null) {
            return true;
        }
        var until = refused.get(peer);
        return until != null && !until.passed();
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var window = new NcclWindow(this, grant, target, end);
        open.incrementAndGet(); // before the look at `closed`: the loop runs until it is 0
        openWindows.add(window);
        var refusal = refusal();
        if (refusal != null) {
            window.finish(new Outcome.Failed(refusal));
            return window;
        }
        windows.put(grant, window);
        post(() -> {
            window.limit(after(deadline.remaining(), () -> window.giveUp(late("filled"))));
            if (closed) {
                window.giveUp(closedFailure());
            }
        });
        var meanwhile = hung; // whoever set it may not have seen this one
        if (meanwhile != null) {
            windows.remove(grant, window);
            window.finish(new Outcome.Failed(meanwhile));
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
        var sending = new NcclSending(this, grant, source, end);
        open.incrementAndGet(); // as for a window
        sendings.add(sending);
        var refusal = refusal();
        if (refusal != null) {
            sending.finish(new Outcome.Failed(refusal));
            return sending;
        }
        post(() -> begin(sending, target, deadline));
        var meanwhile = hung;
        if (meanwhile != null) {
            sending.finish(new Outcome.Failed(meanwhile));
        }
        return sending;
    }

    /// Why nothing new is taken; null when it is.
    private @Nullable Failure refusal() {
        if (closed) {
            return closedFailure();
        }
        var since = hung;
        if (since == null && loop.isFull()) {
            return new Failure(ErrorCode.BACKPRESSURE, name + ": too much waits for the GPU");
        }
        return since;
    }

    private void begin(NcclSending sending, PeerAddress target, Deadline deadline) {
        if (sending.ended()) {
            return;
        }
        sending.limit(after(deadline.remaining(), () -> sending.giveUp(late("sent"))));
        if (closed) {
            sending.giveUp(closedFailure());
            return;
        }
        var peer = target.toString();
        var link = links.get(peer);
        if (link == null) {
            if (noRoom()) {
                avoid(peer);
                sending.giveUp(new Failure(ErrorCode.BACKPRESSURE, MOST_LINKS + " links are open"));
                return;
            }
            link = newLink(peer);
            sending.link(link);
            link.add(sending);
            dial(link);
        } else {
            sending.link(link);
            link.add(sending);
        }
    }

    /// Links whose memory is being freed count: that may take for ever.
    private boolean noRoom() {
        return links.size() + freeing.get() >= MOST_LINKS;
    }

    private Link newLink(String peer) {
        var link = new Link(this, peer);
        links.put(peer, link);
        watched = Arrays.copyOf(watched, watched.length + 1);
        watched[watched.length - 1] = link;
        open.incrementAndGet();
        return link;
    }

    private Failure late(String what) {
        return new Failure(ErrorCode.TIMEOUT, name + ": not " + what + " within its time limit");
    }

    private Failure closedFailure() {
        return new Failure(ErrorCode.CLOSED, name + " is closed");
    }

    /// On the loop, after that time.
    private Future<?> after(Duration time, Runnable work) {
        return clock.after(time, () -> post(work));
    }

    // ---- for links, windows and sendings, on the loop

    void post(Runnable work) {
        loop.post(work);
    }

    void copy(Runnable work) {
        var _ = Thread.ofVirtual().name(name + "-copy").start(work);
    }

    NcclLibrary library() {
        return library;
    }

    AtomicReference<@Nullable Communicator> calling() {
        return calling;
    }

    void joined(LinkSocket socket) {
        sockets.add(socket);
    }

    void left(LinkSocket socket) {
        sockets.remove(socket);
    }

    GpuDriver driver() {
        return driver;
    }

    Limits limits() {
        return limits;
    }

    /// The open window of a grant, which is used up; null when there is none.
    @Nullable NcclWindow take(Grant grant) {
        var window = windows.remove(grant);
        return window != null && window.open() ? window : null;
    }

    void forget(NcclWindow window) {
        windows.remove(window.grant(), window);
        openWindows.remove(window);
        open.decrementAndGet();
    }

    void forget(NcclSending sending) {
        sendings.remove(sending);
        open.decrementAndGet();
    }

    void setUpFailed(Link link, Failure why) {
        if (!closed) {
            LOG.warn("{}: no link with {}: {}", name, link.peer(), why);
        }
        avoid(link.peer());
    }

    /// The next transfers go another way, where there is one. NCCL connects two GPUs only when the
    /// first operation runs, so that a link that was made may still be of no use.
    void avoid(String peer) {
        if (!closed) {
            refused.put(peer, Deadline.in(limits.avoided()));
        }
    }

    void gone(Link link) {
        links.remove(link.peer(), link);
        watched = Stream.of(watched).filter(each -> each != link).toArray(Link[]::new);
    }

    /// Frees what a link had, on a thread of its own: an abort may take long.
    void free(
            String peer,
            @Nullable Communicator communicator,
            GpuDriver.@Nullable Stream stream,
            GpuDriver.@Nullable Buffer sendBuffer,
            GpuDriver.@Nullable Buffer receiveBuffer) {
        freeing.incrementAndGet();
        var _ =
                Thread.ofPlatform()
                        .name(name + "-free")
                        .daemon(true)
                        .start(() -> {
                            quietly(peer, driver::bind);
                            if (communicator != null) {
                                quietly(peer, communicator::abort);
                            }
                            if (stream != null) {
                                quietly(peer, stream::close);
                            }
                            if (sendBuffer != null) {
                                quietly(peer, sendBuffer::close);
                            }
                            if (receiveBuffer != null) {
                                quietly(peer, receiveBuffer::close);
                            }
                            freeing.decrementAndGet();
                            open.decrementAndGet();
                        });
    }

    private void quietly(String peer, Runnable step) {
        try {
            step.run();
        } catch (KvFerryException e) {
            LOG.warn("{}: ending the link with {}: {}", name, peer, e.toString());
        }
    }

    private Pace look() {
        var pace = Pace.NONE;
        for (var link : watched) { // replaced, not changed, when a link comes or goes meanwhile
            pace = pace.faster(link.look());
        }
        return pace;
    }

    // ---- a call that does not return

    /// On the clock. Nothing here waits for the loop or for NCCL.
    private void lookAfterLoop() {
        if (hung == null && loop.stuckFor().compareTo(limits.turn()) > 0) {
            hang();
        }
    }

    private void hang() {
        var why =
                new Failure(
                        ErrorCode.TIMEOUT,
                        "%s: a call of NCCL or of the GPU's driver has not returned within %d ms"
                                .formatted(name, limits.turn().toMillis()));
        var within = calling.get();
        hung = why;
        LOG.error("{}; nothing is taken until it does", why.message());
        endTransfers(why);
        post(this::returned);
        sockets.forEach(LinkSocket::close); // the peers hear of it at once
        if (within != null) {
            var _ =
                    Thread.ofPlatform()
                            .name(name + "-abort")
                            .daemon(true)
                            .start(() -> quietly("a peer", within::abort));
        }
    }

    /// Without the loop. What a copy reads or writes ends with the copy.
    private void endTransfers(Failure why) {
        var outcome = new Outcome.Failed(why);
        openWindows.forEach(window -> guarded(() -> window.finish(outcome)));
        sendings.forEach(sending -> guarded(() -> sending.finish(outcome)));
    }

    private void guarded(Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // of one transfer: the others must hear too
            LOG.error("{}: telling the end of a transfer failed", name, e);
        }
    }

    private boolean hasTransfers() {
        return !openWindows.isEmpty() || !sendings.isEmpty();
    }

    /// The call has returned. What the links believe of their transfers is out of date.
    private void returned() {
        var why = hung;
        if (why != null) {
            for (var link : List.copyOf(links.values())) {
                link.fail(why);
            }
            LOG.warn("{}: the call has returned", name);
            hung = null;
        }
    }

    // ---- dialing

    /// Begins to dial, or drops a link that nobody needs any more.
    void dial(Link link) {
        var first = link.first();
        if (first == null) {
            link.drop();
            return;
        }
        var target = PeerAddress.parse(link.peer()).orElseThrow();
        var hello =
                new LinkMessage.Hello(id, ++dials, address(), first.grant(), limits.slotBytes());
        var _ =
                Thread.ofVirtual()
                        .name(name + "-dial")
                        .start(() -> dial(link, first, target, hello));
    }

    private void dial(Link link, NcclSending first, PeerAddress target, LinkMessage.Hello hello) {
        SocketChannel channel = null;
        try {
            channel = SocketChannel.open();
            var connection = channel;
            opening.add(connection);
            var limit = clock.after(limits.setUp(), () -> PlanePort.closeQuietly(connection));
            try {
                connect(connection, target);
                LinkSocket.writeMessage(connection, hello);
                var answer = LinkSocket.readMessage(connection);
                if (!(answer instanceof LinkMessage.Welcome welcome)) {
                    throw LinkMessage.protocol("no welcome from " + target);
                }
                post(() -> welcomed(link, first, connection, welcome));
            } finally {
                limit.cancel(false);
                opening.remove(connection);
            }
        } catch (KvFerryException e) {
            notDialed(link, channel, Failure.of(e));
        } catch (IOException e) {
            notDialed(
                    link,
                    channel,
                    new Failure(ErrorCode.PEER_LOST, "receiver at " + target + ": " + e));
        } catch (RuntimeException | Error e) { // the link must be told, whatever it was
            notDialed(link, channel, Failure.of(e));
        }
    }

    private void connect(SocketChannel channel, PeerAddress target) throws IOException {
        if (closed) {
            throw new IOException(name + " is closed");
        }
        PlanePort.prepare(channel);
        channel.socket()
                .connect(
                        new InetSocketAddress(target.host(), target.port()),
                        Math.clamp(limits.setUp().toMillis(), 1, Integer.MAX_VALUE));
    }

    private void notDialed(Link link, @Nullable SocketChannel channel, Failure why) {
        if (channel != null) {
            PlanePort.closeQuietly(channel);
        }
        post(() -> {
            if (link.dialing()) {
                link.fail(why);
            }
        });
    }

    private void welcomed(
            Link link, NcclSending first, SocketChannel channel, LinkMessage.Welcome welcome) {
        if (!link.dialing()) { // the peer's dial came first, or the link has ended
            PlanePort.closeQuietly(channel);
        } else if (welcome.code() == 0) {
            link.dialed(new LinkSocket(name + "-link", channel), welcome);
        } else {
            PlanePort.closeQuietly(channel);
            var code = ErrorCode.ofWire(welcome.code()).orElse(ErrorCode.PEER_REFUSED);
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
    }

    // ---- being dialed

    private void came(PlanePort here, SocketChannel channel) {
        var _ = Thread.ofVirtual().name(name + "-greet").start(() -> greet(here, channel));
    }

    /// Only who knows the grant of an open window is heard.
    private void greet(PlanePort here, SocketChannel channel) {
        boolean passed = false;
        try {
            var first = here.hear(channel, () -> LinkSocket.readMessage(channel));
            if (!(first instanceof LinkMessage.Hello hello)) {
                return;
            }
            boolean known =
                    windows.containsKey(hello.grant())
                            && PeerAddress.parse(hello.address()).isPresent()
                            && hello.slotBytes() >= 1;
            var refusal = refusal();
            if (!known || refusal != null) {
                var code = !known || refusal == null ? ErrorCode.NOT_FOUND : refusal.code();
                LinkSocket.writeMessage(
                        channel, new LinkMessage.Welcome(id, code.wire(), 0, limits.slotBytes()));
                return;
            }
            passed = true;
            post(() -> greeted(channel, hello));
        } catch (IOException | KvFerryException e) {
            LOG.debug("{}: a connection ends: {}", name, e.toString());
        } finally {
            here.left(channel);
            if (!passed) {
                PlanePort.closeQuietly(channel);
            }
        }
    }

    private LinkMessage.Welcome welcome(int code) {
        return new LinkMessage.Welcome(id, code, dials, limits.slotBytes());
    }

    /// A peer dialed. Where both dial at once, the dial of the lower plane id counts.
    private void greeted(SocketChannel channel, LinkMessage.Hello hello) {
        var socket = new LinkSocket(name + "-link", channel);
        var link = links.get(hello.address());
        if (closed || link == null && noRoom()) {
            refuse(socket, closed ? ErrorCode.CLOSED : ErrorCode.BACKPRESSURE);
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
            link.fail(new Failure(ErrorCode.PEER_LOST, "the peer has linked anew"));
            link = null;
        }
        if (link == null) {
            link = newLink(hello.address());
        }
        socket.send(welcome(0));
        link.answered(socket, hello.slotBytes());
    }

    private void refuse(LinkSocket socket, ErrorCode code) {
        socket.sendLast(welcome(code.wire()));
    }

    @Override
    public void close() {
        if (closed) { // by a call before this one, which may have left transfers
            checkQuiet();
            return;
        }
        closed = true;
        port.close();
        opening.forEach(PlanePort::closeQuietly);
        post(this::leave);
        var limit = Deadline.in(CLOSE_LIMIT);
        while ((hung == null ? open.get() > 0 : hasTransfers()) && !limit.passed()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
        endTransfers(closedFailure());
        if (open.get() > 0) {
            LOG.warn("{}: not everything ended within {}", name, CLOSE_LIMIT);
        }
        clock.close();
        if (loop.stop(hung == null ? CLOSE_LIMIT : Duration.ofSeconds(1))) {
            driver.close();
        } else {
            LOG.warn("{}: the thread of the GPU did not end; its driver stays open", name);
        }
        checkQuiet();
    }

    private void checkQuiet() {
        if (hasTransfers()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, name + ": copies still use blocks after " + CLOSE_LIMIT);
        }
    }

    private void leave() {
        for (var link : List.copyOf(links.values())) {
            links.remove(link.peer(), link);
            link.leave(closedFailure());
        }
        for (var window : List.copyOf(windows.values())) {
            window.giveUp(closedFailure());
        }
        for (var sending : List.copyOf(sendings)) {
            sending.giveUp(closedFailure());
        }
    }
}
