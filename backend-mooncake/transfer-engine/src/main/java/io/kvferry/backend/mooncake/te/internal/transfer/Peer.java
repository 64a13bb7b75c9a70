// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.tcp.BatchDataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.DataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.PeerHabit;
import io.kvferry.backend.mooncake.te.internal.tcp.PlainDataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.Staging;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.backend.mooncake.te.internal.tcp.Wire;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/// One incarnation of a peer, and its connections ("lanes") to its data port.
///
/// Threading: any thread; a borrowed lane belongs to the borrower.
public final class Peer {
    private static final Logger LOG = LoggerFactory.getLogger(Peer.class);
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long LONG_AGO = TimeUnit.DAYS.toNanos(1);

    public final String segmentName;
    public final SegmentDocument document;
    private final HostPort data;
    private final EngineConfig config;
    private final Watchdog watchdog;

    private final LanePool pool;

    /// Guards what is attached against a drop.
    private final ReentrantLock lock = new ReentrantLock();

    private volatile boolean dropped;

    /// Whether it is being looked up again in the background.
    private final AtomicBoolean lookedUp = new AtomicBoolean();

    private volatile long lastLookUp = System.nanoTime() - LONG_AGO;
    private volatile long lastSeen = lastLookUp;
    private final PeerHabit habit = new PeerHabit();

    /// Counts attempts to write from a random number on. Each peer has its own, for a peer that
    /// knew those of another could end them there.
    private final AtomicLong tokens = new AtomicLong(RANDOM.nextLong());

    private volatile Optional<SharedPeer> shared = Optional.empty();

    /// Whether the peer's memory is on this host but not attached: attaching failed, or it was not
    /// used.
    private volatile boolean detached;

    /// Before this time it is not attached to again.
    private volatile long attachAfter = System.nanoTime();

    /// When its memory was attached to, or seen to have been used.
    private volatile long lastShared = System.nanoTime();

    Peer(
            String segmentName,
            SegmentDocument document,
            HostPort data,
            EngineConfig config,
            Watchdog watchdog) {
        this.segmentName = segmentName;
        this.document = document;
        this.data = data;
        this.config = config;
        this.watchdog = watchdog;
        this.pool = new LanePool(segmentName, config.lanesPerPeer());
        if (config.sharedMemory() && batches() && document.extension().shared()) {
            try {
                shared = attach();
            } catch (IOException e) {
                detached = true;
                LOG.info("no shared memory with {} for now: {}", incarnation(), e.toString());
            }
        }
    }

    private Optional<SharedPeer> attach() throws IOException {
        return SharedPeer.attach(config.sharedMemoryDir(), incarnation(), config.crossMemory());
    }

    /// Tries again what failed for a reason that may have passed.
    ///
    /// @return the peer's memory when it is attached now
    Optional<SharedPeer> attachAgain() {
        if (!detached || dropped || System.nanoTime() - attachAfter < 0) {
            return Optional.empty();
        }
        Optional<SharedPeer> attached;
        try {
            attached = attach();
        } catch (IOException e) {
            LOG.debug("still no shared memory with {}: {}", incarnation(), e.toString());
            return Optional.empty();
        }
        detached = false;
        lock.lock();
        try {
            if (!dropped && shared.isEmpty()) {
                lastShared = System.nanoTime();
                shared = attached;
                return attached;
            }
        } finally {
            lock.unlock();
        }
        attached.ifPresent(SharedPeer::close);
        return Optional.empty();
    }

    /// Detaches the peer's memory if no transfer has used it for `since`. It occupies one of the
    /// few user slots of its owner, and might belong to another engine, since a peer names its
    /// incarnation itself. It is attached again after the same time at the earliest.
    void detachUnused(Duration since) {
        SharedPeer attached = shared.orElse(null);
        long now = System.nanoTime();
        if (attached == null) {
            return;
        }
        if (attached.takeUse()) {
            lastShared = now;
        } else if (now - lastShared >= since.toNanos() && attached.closeIfIdle()) {
            attachAfter = now + since.toNanos();
            lock.lock();
            try {
                shared = Optional.empty();
                detached = true;
            } finally {
                lock.unlock();
            }
        }
    }

    /// The peer's memory as far as it can be reached on this host, shared or its own.
    public Optional<SharedPeer> shared() {
        return shared;
    }

    /// A connection, its history, and what speaks over it.
    static final class Lane {
        final Wire wire;
        boolean used;

        /// Read by others while it rests.
        volatile long restingSince;

        /// Identifier of the thread that used it last.
        long lastUser;

        private @Nullable DataClient client;

        Lane(Wire wire) {
            this.wire = wire;
        }

        DataClient client(Peer peer, RegionTable regions) {
            DataClient made = client;
            if (made == null) {
                made = peer.newClient(regions, wire);
                client = made;
            }
            return made;
        }
    }

    boolean batches() {
        return config.extension() && document.extension().usable();
    }

    boolean receipts() {
        return config.protocolVersion() >= 2 && document.dataVersion() >= 2;
    }

    private DataClient newClient(RegionTable regions, Wire wire) {
        if (batches()) {
            return new BatchDataClient(
                    regions,
                    segmentName,
                    Incarnation.shortForm(incarnation()),
                    config.checksum().covers(wire.withinHost()));
        }
        return receipts()
                ? new DataClient(regions, segmentName)
                : new PlainDataClient(regions, segmentName, habit);
    }

    /// A token for one attempt to write: never 0, and not used before by any engine.
    long newToken() {
        long token = tokens.incrementAndGet();
        return token == 0 ? tokens.incrementAndGet() : token;
    }

    public String incarnation() {
        return document.extension().incarnation();
    }

    /// Whether this is the engine of a document whose data port is there.
    boolean isAt(SegmentDocument found, HostPort port) {
        return found.protocol().equals(document.protocol())
                && found.dataPort() == document.dataPort()
                && found.dataVersion() == document.dataVersion()
                && found.extension().equals(document.extension())
                && port.equals(data);
    }

    /// A look-up that began then has found it.
    void seen(long nanos) {
        lastSeen = nanos;
    }

    /// Whether a look-up that began after this time has found it.
    boolean isSeenSince(long nanos) {
        return lastSeen - nanos > 0;
    }

    /// True for one caller at a time, and at most once in an interval; [#endLookUp] ends it.
    boolean beginLookUp(Duration interval) {
        long now = System.nanoTime();
        if (now - lastLookUp < interval.toNanos() || !lookedUp.compareAndSet(false, true)) {
            return false;
        }
        lastLookUp = now;
        return true;
    }

    void endLookUp() {
        lookedUp.set(false);
    }

    boolean isDropped() {
        return dropped;
    }

    /// A resting lane, a new one, or the next that comes back.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when all lanes stay in use
    /// @throws ClosedChannelException when the job ends first
    Lane borrow(Deadline deadline, DataClient.Job job, Cancellation opening) throws IOException {
        while (true) {
            Lane lane = next(deadline, job, opening);
            boolean fit = false;
            try {
                fit = !lane.used || !isOutOfStep(lane.wire, job.write());
            } finally {
                if (!fit) { // also when the check failed with an OutOfMemoryError
                    giveBack(lane, false);
                }
            }
            if (fit) {
                return lane;
            }
        }
    }

    /// Whether the peer has sent unrequested bytes, which would be taken for its answer to the next
    /// request. Answers carry no number, so bytes that arrive between this check and the answer are
    /// not detected.
    ///
    /// A WRITE that started on a dead lane cannot be repeated unless the peer supports fences; a
    /// READ can.
    private boolean isOutOfStep(Wire wire, boolean write) {
        return write && !batches() ? wire.isStale() : wire.hasUnasked();
    }

    private Lane next(Deadline deadline, DataClient.Job job, Cancellation opening)
            throws IOException {
        Lane resting = pool.take(deadline, job);
        return resting != null ? resting : connectCounted(deadline, opening);
    }

    /// Opens a new lane in place of one that was taken from the pool and turned out to be dead.
    Lane replace(Lane dead, Deadline deadline, Cancellation opening) throws IOException {
        boolean closed = false;
        try {
            dead.wire.abort();
            dead.wire.close();
            closed = true;
        } finally {
            if (!closed) {
                pool.uncount();
            }
        }
        return connectCounted(deadline, opening);
    }

    private Lane connectCounted(Deadline deadline, Cancellation opening) throws IOException {
        Wire wire = null;
        Lane fresh = null;
        try {
            wire = connect(deadline, opening);
            fresh = new Lane(wire);
            return fresh;
        } finally {
            if (fresh == null) {
                pool.uncount();
            }
            if (fresh == null && wire != null) {
                wire.close();
            }
        }
    }

    void giveBack(Lane lane, boolean healthy) {
        lane.used = true;
        boolean inTime = lane.wire.rest();
        boolean usable = healthy && inTime && lane.wire.isInStep();
        if (!pool.give(lane, usable)) {
            if (!usable) {
                lane.wire.abort();
            }
            lane.wire.close();
        }
    }

    /// A borrowed lane does not come back; its borrower closes it.
    void letGo() {
        pool.uncount();
    }

    /// Closes lanes that the peer has closed, and those idle for long. Nothing else checks the
    /// lanes to a peer that is no longer sent to and may be gone for good.
    ///
    /// @param shortest lanes idle for less than this are skipped
    /// @param longest lanes idle for longer than this are closed
    void sweep(Duration shortest, Duration longest) {
        pool.sweep(shortest, longest);
    }

    /// Whether nothing has been sent for so long, and nothing would be lost by forgetting it.
    boolean isUnused(Duration since) {
        return shared.isEmpty() && pool.isUnused(since);
    }

    /// Connections, resting or in use.
    int lanes() {
        return pool.lanes();
    }

    /// Lets those who wait for a lane see that their job has ended.
    void wakeWaiters() {
        pool.wakeWaiters();
    }

    /// No more lanes; those in use end when they are given back.
    void drop() {
        lock.lock();
        try {
            dropped = true; // nothing is attached from now on
        } finally {
            lock.unlock();
        }
        try {
            shared.ifPresent(SharedPeer::close);
        } finally {
            pool.close();
        }
    }

    /// A connection outside the pool. Cancelling ends the look-up of the peer's name, the connect
    /// and the proof that the peer knows the fleet's secret.
    ///
    /// @throws KvFerryException why it was cancelled
    Wire connect(Deadline deadline, Cancellation opening) throws IOException {
        var limit = deadline.earlier(Deadline.in(config.connectTimeout()));
        return connect(HostNames.SYSTEM.addresses(data.host(), limit, opening), deadline, opening);
    }

    /// @throws ConnectException when none of the addresses has a listener
    Wire connect(InetAddress[] addresses, Deadline deadline, Cancellation opening)
            throws IOException {
        IOException failure = null;
        for (InetAddress address : addresses) {
            SocketChannel channel = SocketChannel.open();
            boolean connected = false;
            try {
                opening.begin(channel);
                int limit =
                        Handshake.leftMillis(
                                deadline.earlier(Deadline.in(config.connectTimeout())));
                DataSockets.connect(channel, new InetSocketAddress(address, data.port()), limit);
                DataSockets.boundBuffers(channel, config.socketBufferBytes());
                Wire wire =
                        greeted(
                                new Wire(channel, config, watchdog, Staging.Pair.allocate()),
                                deadline);
                connected = true;
                return wire;
            } catch (SocketTimeoutException e) {
                throw e;
            } catch (IOException e) {
                if (failure == null || failure instanceof ConnectException) {
                    failure = e;
                }
            } finally {
                opening.end(channel);
                if (!connected) { // also after an OutOfMemoryError
                    channel.close();
                }
            }
        }
        throw failure == null ? new UnknownHostException(data.host()) : failure;
    }

    private Wire greeted(Wire wire, Deadline deadline) throws IOException {
        Optional<PeerAuth> auth = config.auth(PeerAuth.Kind.DATA);
        if (auth.isEmpty()) {
            return wire;
        }
        boolean done = false;
        try {
            wire.begin(deadline.earlier(Deadline.in(config.connectTimeout())));
            auth.get().connect(wire.bytes());
            done = wire.rest();
            if (!done) {
                throw new SocketTimeoutException("the time to prove the secret is up");
            }
            return wire;
        } finally {
            if (!done) {
                wire.close();
            }
        }
    }
}
