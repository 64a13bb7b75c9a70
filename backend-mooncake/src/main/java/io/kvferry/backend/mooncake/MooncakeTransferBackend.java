// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.EngineMemory;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// The transfer backend over either engine.
///
/// Threading: CONCURRENT. One thread delivers notifications, a few send them; both end with
/// [#close].
final class MooncakeTransferBackend implements TransferBackend {
    private static final Logger LOG = LoggerFactory.getLogger(MooncakeTransferBackend.class);
    private static final int MOST_NOTIFICATIONS = 64;
    private static final int SENDERS = 2;
    private static final int SEND_QUEUE = 4096;
    private static final Duration NOTIFY_LIMIT = Duration.ofSeconds(10);
    private static final Duration LISTEN = Duration.ofMillis(200);

    private final BackendContext context;
    private final BackendCapabilities capabilities;
    private final TransferEngine engine;
    private final EngineInfo info;
    private final Access access;
    private final Set<MooncakeRegistration> regions = ConcurrentHashMap.newKeySet();
    private final Map<String, MooncakePeer> peers = new ConcurrentHashMap<>();
    private final AtomicBoolean closed = new AtomicBoolean();
    private final ThreadPoolExecutor senders;
    private final Thread listener;

    /// @param access of peers to memory that is registered
    MooncakeTransferBackend(
            BackendContext context,
            BackendCapabilities capabilities,
            TransferEngine engine,
            Access access) {
        this.access = access;
        this.context = context;
        this.capabilities = capabilities;
        this.engine = engine;
        this.info = engine.info();
        String agent = context.self().agent();
        this.senders =
                new ThreadPoolExecutor(
                        SENDERS,
                        SENDERS,
                        10,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(SEND_QUEUE),
                        Thread.ofPlatform()
                                .name("kvferry-mooncake-notify-" + agent + "-", 0)
                                .daemon()
                                .factory());
        senders.allowCoreThreadTimeOut(true);
        LOG.info(
                "MOONCAKE of {}: {} engine, transport {}, segment {}",
                context.self(),
                info.kind(),
                info.transport(),
                info.segmentName());
        this.listener = // last: nobody could end it where this fails
                Thread.ofPlatform()
                        .name("kvferry-mooncake-listen-" + agent)
                        .daemon()
                        .start(new LastingLoop(this::listen));
    }

    private void listen() {
        while (!closed.get()) {
            try {
                var come = engine.awaitNotifications(MOST_NOTIFICATIONS, Deadline.in(LISTEN));
                // An iterator takes memory, and they have left the engine.
                for (int i = 0; i < come.size(); i++) {
                    deliver(come.get(i));
                }
            } catch (RuntimeException | Error e) { // an escaping one would end all notifications
                if (!closed.get()) {
                    LoopReport.WARN.log(LOG, "asking for notifications failed", e);
                    LockSupport.parkNanos(LISTEN.toNanos());
                }
            }
        }
    }

    /// What fails costs one notification, not those that came with it.
    private void deliver(io.kvferry.backend.mooncake.te.Notification notification) {
        try {
            Notifications.Received received = decode(notification);
            context.sink().notified(received.from(), received.bytes());
        } catch (RuntimeException | Error e) {
            LoopReport.WARN.log(LOG, "a notification was not delivered", e);
        }
    }

    /// Waits for memory for some seconds: its sender was told that it has come.
    private Notifications.Received decode(
            io.kvferry.backend.mooncake.te.Notification notification) {
        for (int attempt = 1; ; attempt++) {
            try {
                return Notifications.decode(notification);
            } catch (OutOfMemoryError e) {
                if (closed.get()) {
                    throw e;
                }
                HeapPause.after(attempt, e);
            }
        }
    }

    @Override
    public BackendCapabilities capabilities() {
        return capabilities;
    }

    @Override
    public Registration register(MemoryRange memory) {
        requireOpen();
        if (!(memory instanceof MemoryRange.Host host)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "MOONCAKE moves host memory only, not " + memory.kind());
        }
        var registration = new MooncakeRegistration(host, regions::remove);
        regions.add(registration); // what comes behind the engine's part takes no memory
        boolean done = false;
        try {
            registration.begin(engine.register(host.segment(), access));
            done = true;
            return registration;
        } finally {
            if (!done) {
                regions.remove(registration);
            }
        }
    }

    /// Shared memory of this machine: peers on it copy without a socket.
    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        requireOpen();
        return EngineMemory.of(engine, bytes);
    }

    @Override
    public byte[] localMetadata() {
        requireOpen();
        return MooncakePeer.Section.encode(
                info.segmentName(), info.incarnation(), engine.memoryKey(), regions);
    }

    @Override
    public void loadPeer(PeerId peer, byte[] bytes) {
        requireOpen();
        MooncakePeer.Section section = MooncakePeer.Section.decode(peer, bytes);
        MooncakePeer known = peers.get(peer.agent());
        if (known != null && known.id().incarnation() > peer.incarnation()) {
            throw new KvFerryException(
                    ErrorCode.STALE_INCARNATION,
                    peer + " started anew as " + known.id() + "; ask it for its metadata");
        }
        if (known != null && known.id().equals(peer)) {
            known.update(section);
            return;
        }
        peers.put(peer.agent(), new MooncakePeer(peer, section));
        if (known != null) {
            known.drop();
        }
        context.sink().peerChanged(peer, PeerState.KNOWN, "metadata loaded");
    }

    @Override
    public void dropPeer(PeerId peer) {
        MooncakePeer known = peers.get(peer.agent());
        if (known != null && known.id().equals(peer) && peers.remove(peer.agent(), known)) {
            known.drop();
        }
    }

    private boolean isRegistered(long at, long length) {
        for (MooncakeRegistration region : regions) {
            if (region.covers(at, length)) {
                return true;
            }
        }
        return false;
    }

    @Override
    public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        requireOpen();
        Optional<MooncakePeer> known = peer.map(this::requirePeer);
        for (int i = 0; i < descriptors.count(); i++) {
            long at = descriptors.address(i);
            long length = descriptors.length(i);
            boolean covered =
                    known.isPresent()
                            ? known.get().section().covers(at, length)
                            : isRegistered(at, length);
            if (!covered || descriptors.device(i) != 0) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND,
                        "range %d (0x%x, %d bytes) is in no region registered by %s"
                                .formatted(
                                        i,
                                        at,
                                        length,
                                        peer.map(PeerId::toString).orElse("this agent")));
            }
        }
        return new MooncakePrepared(this, known, descriptors);
    }

    @Override
    public Transfer submit(TransferRequest request) {
        requireOpen();
        MooncakePrepared far = RequestChecks.check(this, request);
        var ranges = far.pairedWith(request.local().descriptors());
        String segment =
                far.knownPeer()
                        .map(peer -> peer.section().segmentName())
                        .orElse(info.segmentName());
        var tracked =
                engine.submit(
                        new EngineRequest(
                                request.operation() == io.kvferry.spi.transfer.Operation.READ
                                        ? Operation.READ
                                        : Operation.WRITE,
                                segment,
                                ranges,
                                request.deadline(),
                                far.knownPeer()
                                        .map(peer -> peer.section().incarnation())
                                        .orElse(""),
                                0,
                                far.knownPeer()
                                        .map(peer -> peer.section().memoryKey())
                                        .orElse(engine.memoryKey()),
                                request.notification()
                                        .map(bytes -> Notifications.encode(context.self(), bytes))),
                        transfer -> track(transfer, request.deadline(), far.knownPeer()));
        refuseIfFull(tracked);
        return tracked;
    }

    /// Before it starts: once it runs, its caller must hear of its end.
    private MooncakeTransfer track(
            EngineTransfer transfer, Deadline deadline, Optional<MooncakePeer> to) {
        var tracked =
                new MooncakeTransfer(
                        transfer,
                        deadline,
                        capabilities.has(BackendCapabilities.Feature.APPLIED_ON_COMPLETION));
        tracked.follow(outcome -> {
            if (to.isPresent()) {
                ended(to.get(), tracked, outcome);
            }
        });
        if (to.isPresent()) {
            to.get().started(tracked);
        }
        return tracked;
    }

    /// The engine says so in the outcome; the contract wants it thrown, for nothing was started.
    private static void refuseIfFull(MooncakeTransfer transfer) {
        if (transfer.endedSoFar() instanceof TransferOutcome.Failed failed
                && failed.failure().code() == ErrorCode.BACKPRESSURE) {
            throw failed.failure().toException();
        }
    }

    private void ended(MooncakePeer peer, MooncakeTransfer transfer, TransferOutcome outcome) {
        peer.ended(transfer);
        if (peer.isDropped()) {
            return;
        }
        switch (outcome) {
            case TransferOutcome.Done _ -> changePeer(peer, PeerState.READY, "reached");
            case TransferOutcome.Failed failed -> {
                switch (failed.failure().code()) {
                    case STALE_INCARNATION ->
                            changePeer(peer, PeerState.LOST, failed.failure().message());
                    case PEER_LOST, TIMEOUT, IO -> // a connection may be lost and the peer live on
                            changePeer(peer, PeerState.SUSPECT, failed.failure().message());
                    default -> {}
                }
            }
            case TransferOutcome.TimedOut _ ->
                    changePeer(peer, PeerState.SUSPECT, "a deadline passed");
            case TransferOutcome.Cancelled _ -> {}
        }
    }

    private void changePeer(MooncakePeer peer, PeerState next, String why) {
        if (peer.moveTo(next)) {
            context.sink().peerChanged(peer.id(), next, why);
        }
    }

    @Override
    public void notify(PeerId peer, byte[] notification) {
        requireOpen();
        MooncakePeer known = requirePeer(peer);
        var message = Notifications.encode(context.self(), notification);
        try {
            senders.execute(new Sending(known, message));
        } catch (RejectedExecutionException e) {
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE, SEND_QUEUE + " notifications wait to be sent", e);
        }
    }

    /// A notification that was accepted.
    private final class Sending implements Runnable {
        private final MooncakePeer peer;
        private final io.kvferry.backend.mooncake.te.Notification message;

        Sending(MooncakePeer peer, io.kvferry.backend.mooncake.te.Notification message) {
            this.peer = peer;
            this.message = message;
        }

        @Override
        public void run() {
            try {
                engine.send(peer.section().segmentName(), message, Deadline.in(NOTIFY_LIMIT));
            } catch (RuntimeException | Error e) { // Errors too: nothing is lost in silence
                try { // first, so that whoever hears of the loss sees it
                    changePeer(e);
                } finally {
                    tell(Failure.of(e));
                }
            }
        }

        private void changePeer(Throwable why) {
            if (why instanceof KvFerryException coded
                    && !peer.isDropped()
                    && (coded.code() == ErrorCode.PEER_LOST || coded.code() == ErrorCode.TIMEOUT)) {
                MooncakeTransferBackend.this.changePeer(
                        peer, PeerState.SUSPECT, String.valueOf(why.getMessage()));
            }
        }

        /// Waits for memory for some seconds: nobody else tells it.
        private void tell(Failure why) {
            for (int attempt = 1; ; attempt++) {
                try {
                    notDelivered(why);
                    return;
                } catch (OutOfMemoryError e) {
                    if (closed.get()) {
                        throw e;
                    }
                    HeapPause.after(attempt, e);
                }
            }
        }

        void notDelivered(Failure why) {
            context.events()
                    .emit(
                            new TraceEvent.Incident(
                                    "",
                                    "notification not delivered",
                                    "MOONCAKE",
                                    Map.of(
                                            "peer", peer.id().toString(),
                                            "code", why.code().name(),
                                            "detail", why.message())));
        }
    }

    @Override
    public Optional<Long> estimateNanos(
            io.kvferry.spi.transfer.Operation operation,
            Optional<PeerId> peer,
            int descriptors,
            long bytes) {
        // A loopback round trip, then 2 to 3 GB/s; 100 ns for a descriptor of a batch. The agent
        // corrects it.
        return Optional.of(30_000L + 100L * descriptors + bytes * 2 / 5);
    }

    /// The peer as known now, if it is that incarnation.
    MooncakePeer requirePeer(PeerId peer) {
        MooncakePeer known = peers.get(peer.agent());
        if (known == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "peer " + peer + " is unknown; load its metadata first");
        }
        if (!known.id().equals(peer)) {
            throw new KvFerryException(ErrorCode.STALE_INCARNATION, peer + " is now " + known.id());
        }
        return known;
    }

    private void requireOpen() {
        if (closed.get()) {
            throw new KvFerryException(
                    ErrorCode.CLOSED, "backend MOONCAKE of " + context.self() + " is closed");
        }
    }

    @Override
    public void close() {
        closed.set(true);
        var unsent = new Failure(ErrorCode.CLOSED, "the backend was closed first");
        for (var waiting : senders.shutdownNow()) {
            if (waiting instanceof Sending sending) {
                sending.notDelivered(unsent);
            }
        }
        engine.close(); // at once when it is closed, and again when it failed
        try {
            if (!listener.join(Duration.ofSeconds(5))) {
                LOG.warn("{} did not end in time", listener.getName());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        regions.clear();
    }
}
