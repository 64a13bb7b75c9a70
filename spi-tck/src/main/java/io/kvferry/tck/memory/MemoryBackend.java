// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferRequest;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// Host memory to host memory within one JVM: the initiator copies, chunk by chunk.
///
/// Threading: CONCURRENT with a thread of its own, or CONFINED to the thread that opened it.
final class MemoryBackend implements TransferBackend {
    private static final long CHUNK = 1 << 20;
    private static final int INBOX = 4096;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

    /// A notification on its way to the sink of the agent that it is for.
    private record Message(PeerId from, byte[] bytes) {}

    private final BackendContext context;
    private final BackendCapabilities capabilities;
    private final Thread owner;
    private final int queueLimit;
    private final MemoryFabric fabric;
    private final CopyOnWriteArrayList<MemoryRegion> regions = new CopyOnWriteArrayList<>();
    private final Map<String, MemoryPeer> peers = new ConcurrentHashMap<>();
    private final LinkedBlockingQueue<MemoryTransfer> queue;
    private final LinkedBlockingQueue<Message> inbox = new LinkedBlockingQueue<>(INBOX);
    private volatile boolean closed;

    /// How often this agent had its turn.
    private volatile long turns;

    private MemoryBackend(BackendContext context, BackendCapabilities capabilities) {
        this.context = context;
        this.capabilities = capabilities;
        this.queueLimit = (int) context.options().integer("queue");
        this.queue = new LinkedBlockingQueue<>(queueLimit);
        this.owner =
                isConfined()
                        ? Thread.currentThread()
                        : Thread.ofPlatform()
                                .daemon()
                                .name("kvferry-memory-" + context.self().agent())
                                .unstarted(this::run);
        this.fabric = MemoryFabric.join(context.options().string("fabric"), this);
    }

    static MemoryBackend open(BackendContext context, BackendCapabilities capabilities) {
        var backend = new MemoryBackend(context, capabilities);
        if (!backend.isConfined()) {
            backend.owner.start();
        }
        return backend;
    }

    PeerId self() {
        return context.self();
    }

    private boolean isConfined() {
        return capabilities.threading() == BackendCapabilities.Threading.CONFINED;
    }

    @Override
    public BackendCapabilities capabilities() {
        return capabilities;
    }

    @Override
    public Registration register(MemoryRange memory) {
        checkUsable();
        if (!(memory instanceof MemoryRange.Host host)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "MEMORY moves host memory only, not " + memory.kind());
        }
        var region = new MemoryRegion(host, regions::remove);
        regions.add(region);
        return region;
    }

    @Override
    public byte[] localMetadata() {
        checkUsable();
        return MemoryPeer.encode(regions);
    }

    @Override
    public void loadPeer(PeerId peer, byte[] section) {
        checkUsable();
        var ranges = MemoryPeer.decode(peer, section);
        var known = peers.get(peer.agent());
        if (known != null && known.id().incarnation() > peer.incarnation()) {
            throw new KvFerryException(
                    ErrorCode.STALE_INCARNATION,
                    peer + " started anew as " + known.id() + "; ask it for its metadata");
        }
        if (known != null && known.id().equals(peer)) {
            known.update(ranges);
            return;
        }
        if (known != null) {
            known.drop();
        }
        peers.put(peer.agent(), new MemoryPeer(peer, ranges));
        context.sink().peerChanged(peer, PeerState.KNOWN, "metadata loaded");
    }

    @Override
    public void dropPeer(PeerId peer) {
        checkUsable();
        var known = peers.get(peer.agent());
        if (known != null && known.id().equals(peer) && peers.remove(peer.agent(), known)) {
            // What is queued for it fails when its turn comes, without touching memory.
            known.drop();
        }
    }

    @Override
    public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        checkUsable();
        Optional<MemoryPeer> known = peer.map(this::requirePeer);
        for (int i = 0; i < descriptors.count(); i++) {
            long at = descriptors.address(i);
            long length = descriptors.length(i);
            boolean covered =
                    known.isPresent()
                            ? known.get().covers(at, length) || isThere(known.get(), at, length)
                            : regions.stream().anyMatch(region -> region.covers(at, length));
            if (!covered || descriptors.device(i) != 0) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND,
                        "range "
                                + i
                                + " (0x"
                                + Long.toHexString(at)
                                + ", "
                                + length
                                + " bytes) is in no region registered by "
                                + peer.map(PeerId::toString).orElse("this agent"));
            }
        }
        return new MemoryPrepared(this, known, descriptors);
    }

    /// Whether the peer has registered the range since it told of its regions.
    private boolean isThere(MemoryPeer peer, long at, long length) {
        return capabilities.has(BackendCapabilities.Feature.SELF_MANAGED_METADATA)
                && fabric.find(peer.id()).flatMap(agent -> agent.region(at, length)).isPresent();
    }

    @Override
    public Transfer submit(TransferRequest request) {
        checkUsable();
        MemoryChecks.check(this, request);
        var transfer =
                new MemoryTransfer(
                        request, () -> capabilities.has(BackendCapabilities.Feature.CANCEL));
        if (!queue.offer(transfer)) {
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    queueLimit + " transfers are queued already (option \"queue\")");
        }
        if (closed) {
            failQueued();
        }
        return transfer;
    }

    @Override
    public void notify(PeerId peer, byte[] notification) {
        checkUsable();
        MemoryChecks.require(capabilities, BackendCapabilities.Feature.NOTIFY);
        requirePeer(peer);
        var target =
                fabric.find(peer)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.PEER_LOST, peer + " has left the fabric"));
        if (!target.accept(self(), notification)) {
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE, INBOX + " notifications wait at " + peer);
        }
    }

    @Override
    public Optional<Long> estimateNanos(
            Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
        return Optional.of(1_000L + 50L * descriptors + bytes / 8); // a memcpy of some 8 GB/s
    }

    @Override
    public int poll() {
        if (!isConfined()) {
            return 0;
        }
        checkUsable();
        return work();
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        checkThread();
        closed = true;
        if (isConfined()) {
            failQueued();
        } else {
            join();
        }
        fabric.leave(this);
        regions.forEach(MemoryRegion::close);
    }

    private void join() {
        try {
            if (!owner.join(CLOSE_LIMIT)) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, owner.getName() + " did not end within " + CLOSE_LIMIT);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while closing " + owner.getName(), e);
        }
    }

    private void run() {
        while (!closed) {
            if (work() == 0) {
                idle();
            }
        }
        failQueued();
    }

    private void idle() {
        try {
            var message = inbox.poll(1, TimeUnit.MILLISECONDS);
            if (message != null) {
                context.sink().notified(message.from, message.bytes);
            }
        } catch (InterruptedException e) {
            closed = true; // nobody of ours interrupts: the host wants its threads back
        }
    }

    /// One notification and one chunk of one transfer.
    @SuppressWarnings("NonAtomicOperationOnVolatileField") // one owner writes
    private int work() {
        int done = 0;
        turns++;
        var message = inbox.poll();
        if (message != null) {
            context.sink().notified(message.from, message.bytes);
            done++;
        }
        var transfer = queue.peek();
        if (transfer != null) {
            if (step(transfer)) {
                queue.remove(transfer);
            }
            done++;
        }
        return done;
    }

    private void failQueued() {
        for (var transfer = queue.poll(); transfer != null; transfer = queue.poll()) {
            transfer.fail(
                    new Failure(ErrorCode.CLOSED, "backend " + self() + " was closed"),
                    perDescriptor());
        }
    }

    /// Moves one chunk; true when the transfer ended.
    private boolean step(MemoryTransfer transfer) {
        var request = transfer.request();
        if (transfer.isCancelling()) {
            transfer.cancelled();
            return true;
        }
        if (request.deadline().passed()) {
            transfer.timedOut();
            return true;
        }
        var far = ((MemoryPrepared) request.remote()).knownPeer();
        var target =
                far.isEmpty()
                        ? Optional.of(this)
                        : far.filter(peer -> !peer.isDropped())
                                .flatMap(peer -> fabric.find(peer.id()));
        if (target.isEmpty()) {
            far.ifPresent(peer -> changePeer(peer, PeerState.LOST, "left the fabric"));
            transfer.fail(
                    new Failure(ErrorCode.PEER_LOST, far.map(MemoryPeer::id) + " is gone"),
                    perDescriptor());
            return true;
        }
        far.ifPresent(peer -> changePeer(peer, PeerState.READY, "reached"));
        if (capabilities.has(BackendCapabilities.Feature.NEEDS_TARGET_PROGRESS)
                && !transfer.targetTookTurn(target.get().turns)) {
            return false;
        }
        if (!transfer.allMoved()) {
            var failure = copyChunk(transfer, target.get());
            failure.ifPresent(why -> transfer.fail(why, perDescriptor()));
            return failure.isPresent();
        }
        if (transfer.needsNotification()) {
            if (!target.get().accept(self(), request.notification().orElseThrow())) {
                return false; // the peer's inbox is full: try again until the deadline
            }
            transfer.notificationSent();
        }
        transfer.done();
        return true;
    }

    private Optional<Failure> copyChunk(MemoryTransfer transfer, MemoryBackend target) {
        var request = transfer.request();
        int index = transfer.index();
        var nearList = request.local().descriptors();
        long near = nearList.address(index);
        long far = request.remote().descriptors().address(index);
        long length = nearList.length(index);
        var nearRegion = region(near, length);
        var farRegion = target.region(far, length);
        if (nearRegion.isEmpty() || farRegion.isEmpty()) {
            return Optional.of(
                    nearRegion.isEmpty()
                            ? new Failure(
                                    ErrorCode.CLOSED,
                                    "local range " + index + " is no longer registered")
                            : new Failure(
                                    ErrorCode.PEER_REFUSED,
                                    "range " + index + " is not registered at " + target.self()));
        }
        long at = transfer.offset();
        long bytes = Math.min(CHUNK, length - at);
        boolean copied =
                request.operation() == Operation.WRITE
                        ? MemoryRegion.copy(
                                nearRegion.get(), near + at, farRegion.get(), far + at, bytes)
                        : MemoryRegion.copy(
                                farRegion.get(), far + at, nearRegion.get(), near + at, bytes);
        if (copied && fabric.takeDamage()) {
            if (request.operation() == Operation.WRITE) {
                farRegion.get().flip(far + at);
            } else {
                nearRegion.get().flip(near + at);
            }
        }
        if (copied
                && capabilities.has(BackendCapabilities.Feature.CHECKSUM)
                && !MemoryRegion.equal(
                        nearRegion.get(), near + at, farRegion.get(), far + at, bytes)) {
            return Optional.of(
                    new Failure(ErrorCode.CORRUPT, "range " + index + " arrived damaged"));
        }
        if (!copied) {
            return Optional.of(
                    new Failure(
                            ErrorCode.CLOSED,
                            "range " + index + " was deregistered during the transfer"));
        }
        transfer.advance(bytes);
        return Optional.empty();
    }

    private Optional<MemoryRegion> region(long at, long length) {
        for (var region : regions) {
            if (region.covers(at, length)) {
                return Optional.of(region);
            }
        }
        return Optional.empty();
    }

    private boolean accept(PeerId from, byte[] notification) {
        return !closed && inbox.offer(new Message(from, notification.clone()));
    }

    private void changePeer(MemoryPeer peer, PeerState state, String why) {
        if (peer.moveTo(state)) {
            context.sink().peerChanged(peer.id(), state, why);
        }
    }

    private boolean perDescriptor() {
        return capabilities.has(BackendCapabilities.Feature.PER_DESCRIPTOR_RESULTS);
    }

    /// The peer as known now, if it is that incarnation.
    MemoryPeer requirePeer(PeerId peer) {
        var known = peers.get(peer.agent());
        if (known == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND, "peer " + peer + " is unknown; load its metadata first");
        }
        if (!known.id().equals(peer)) {
            throw new KvFerryException(ErrorCode.STALE_INCARNATION, peer + " is now " + known.id());
        }
        return known;
    }

    boolean serves(Operation operation, boolean remote, MemoryPrepared near, MemoryPrepared far) {
        var route =
                new Route(
                        operation,
                        near.descriptors().kind(),
                        far.descriptors().kind(),
                        remote ? Route.Scope.REMOTE : Route.Scope.LOOPBACK);
        return capabilities.routes().contains(route);
    }

    private void checkUsable() {
        checkThread();
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "backend " + self() + " is closed");
        }
    }

    private void checkThread() {
        if (isConfined() && Thread.currentThread() != owner) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "backend "
                            + self()
                            + " is confined to "
                            + owner.getName()
                            + ", called from "
                            + Thread.currentThread().getName());
        }
    }
}
