// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The known peers. A peer is looked up once and kept until there is evidence that it is gone.
///
/// Threading: any thread; concurrent lookups of one peer share one request.
public final class PeerTable {
    private static final Logger LOG = LoggerFactory.getLogger(PeerTable.class);

    /// Interval at which resting connections are looked at.
    private static final long SWEEP_NANOS = TimeUnit.SECONDS.toNanos(5);

    /// Connections in constant use are left alone.
    private static final Duration RESTS = Duration.ofSeconds(1);

    /// Shorter than firewalls and address translators forget a connection.
    private static final Duration LONGEST_REST = Duration.ofMinutes(2);

    private static final Duration FORGOTTEN_AFTER = Duration.ofMinutes(10);

    /// Least time between two look-ups of a known peer in the background.
    private static final Duration AGAIN = Duration.ofSeconds(1);

    private final Map<String, Slot> slots = new ConcurrentHashMap<>();
    private final SegmentDirectory directory;
    private final EngineConfig config;
    private final Watchdog watchdog;
    private long lastSweep = System.nanoTime();
    private volatile boolean closed;

    /// Ends what is looked up in the background.
    private final Cancellation again = new Cancellation();

    public PeerTable(SegmentDirectory directory, EngineConfig config, Watchdog watchdog) {
        this.directory = directory;
        this.config = config;
        this.watchdog = watchdog;
        watchdog.repeat(this::sweepInTime);
    }

    private static final class Slot {
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition changed = lock.newCondition();
        private boolean asking;
        volatile @Nullable Peer peer;

        /// Waits until no other thread looks the peer up. Then the caller may, until [#end].
        void begin(String name, Deadline deadline, Cancellation cancellation) {
            Closeable wake = this::wake;
            cancellation.begin(wake);
            lock.lock();
            try {
                while (asking) {
                    cancellation.check();
                    long left = deadline.remainingNanos();
                    if (left <= 0) {
                        throw new KvFerryException(
                                ErrorCode.TIMEOUT, "looking up " + name + " took too long");
                    }
                    var _ = changed.awaitNanos(left);
                }
                asking = true;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new KvFerryException(
                        ErrorCode.CANCELLED, "interrupted while looking up " + name, e);
            } finally {
                lock.unlock();
                cancellation.end(wake);
            }
        }

        void end() {
            lock.lock();
            try {
                asking = false;
                changed.signal();
            } finally {
                lock.unlock();
            }
        }

        private void wake() {
            lock.lock();
            try {
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    /// @throws KvFerryException as [TransferEngine#open], or why it was cancelled
    public Peer find(String segmentName, Deadline deadline, Cancellation cancellation) {
        String name = segmentName.startsWith("/") ? segmentName.substring(1) : segmentName;
        @Nullable Peer found = null;
        while (found == null) {
            found =
                    find(
                            slots.computeIfAbsent(name, _ -> new Slot()),
                            name,
                            deadline,
                            cancellation);
        }
        return found;
    }

    /// Null when the slot was given up meanwhile and another one has its place.
    private @Nullable Peer find(
            Slot slot, String name, Deadline deadline, Cancellation cancellation) {
        Peer known = slot.peer;
        if (known != null && !known.isDropped()) {
            return known;
        }
        slot.begin(name, deadline, cancellation);
        try {
            known = slot.peer;
            if (known == null || known.isDropped()) {
                known = ask(name, deadline, cancellation);
                slot.peer = known;
                Slot listed = slots.putIfAbsent(name, slot);
                if (listed != null && listed != slot) {
                    known.drop(); // nothing would sweep its connections
                    return null;
                }
                if (closed) { // nothing else would drop it
                    drop(known);
                    throw new KvFerryException(ErrorCode.CLOSED, "closed while looking up " + name);
                }
            }
            return known;
        } finally {
            if (slot.peer == null) {
                slots.remove(name, slot);
            }
            slot.end();
        }
    }

    private Peer ask(String name, Deadline deadline, Cancellation cancellation) {
        SegmentDocument document = directory.find(name, deadline, cancellation);
        if (!document.protocol().equals("tcp") || document.dataPort() == 0) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "peer %s speaks '%s' and has data port %d; this engine moves bytes over tcp only. Start the peer with MC_FORCE_TCP=1, or use engine=native here"
                            .formatted(name, document.protocol(), document.dataPort()));
        }
        var data = directory.dataOf(document, deadline, cancellation);
        var peer = new Peer(name, document, data, config, watchdog);
        if (peer.shared().isPresent()) {
            watch(peer, peer.shared().get());
        }
        return peer;
    }

    /// Looks up which engine has the name of a known peer now, and forgets the peer if it is
    /// another engine. Transfers with the peer continue meanwhile. Returns without a request if
    /// another thread's lookup, started after this call, has found the peer.
    ///
    /// @throws KvFerryException as [#find]; the peer then stays known
    void lookUpAgain(Peer peer, Deadline deadline, Cancellation cancellation) {
        long called = System.nanoTime();
        String name = peer.segmentName;
        Slot slot = slots.computeIfAbsent(name, _ -> new Slot());
        slot.begin(name, deadline, cancellation);
        try {
            if (peer.isDropped() || peer.isSeenSince(called)) {
                return;
            }
            long began = System.nanoTime();
            SegmentDocument document = directory.find(name, deadline, cancellation);
            if (peer.isAt(document, directory.dataOf(document, deadline, cancellation))) {
                peer.seen(began);
            } else {
                drop(peer);
            }
        } finally {
            if (slot.peer == null) {
                slots.remove(name, slot);
            }
            slot.end();
        }
    }

    /// [#lookUpAgain] in the background, one look-up of a peer at a time and at most one in a
    /// second.
    void lookUpAgainSoon(Peer peer) {
        if (closed || !peer.beginLookUp(AGAIN)) {
            return;
        }
        boolean begun = false;
        try {
            var _ =
                    Thread.ofPlatform() // see HandshakeServer
                            .name("kvferry-te-io-again")
                            .daemon()
                            .start(() -> lookUpAgain(peer));
            begun = true;
        } catch (OutOfMemoryError e) { // no thread: a later failure asks for it again
            LOG.debug("peer {} is not looked up again", peer.segmentName, e);
        } finally {
            if (!begun) {
                peer.endLookUp();
            }
        }
    }

    /// Forgets the peer if it can no longer be found or reached; other failures may be transient.
    private void lookUpAgain(Peer peer) {
        var limit = Deadline.in(config.connectTimeout().plus(config.handshakeTimeout()));
        try {
            lookUpAgain(peer, limit, again);
        } catch (KvFerryException e) {
            LOG.debug("peer {} is not found again: {}", peer.segmentName, e.getMessage());
            boolean gone = e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.PEER_LOST;
            if (gone && !isSeenToLive(peer)) {
                drop(peer);
            }
        } finally {
            peer.endLookUp();
        }
    }

    private static boolean isSeenToLive(Peer peer) {
        return peer.shared().filter(SharedPeer::isAlive).isPresent();
    }

    /// Forgets a peer after a lost connection, unless it is known to be alive on this host: copies
    /// into its memory continue, and forgetting it would end them.
    void connectionLost(Peer peer) {
        if (isSeenToLive(peer)) {
            lookUpAgainSoon(peer);
        } else {
            drop(peer);
        }
    }

    private boolean sweepInTime() {
        long now = System.nanoTime();
        if (now - lastSweep >= SWEEP_NANOS) {
            lastSweep = now;
            var _ = sweeper(this::sweep);
        }
        return !closed;
    }

    /// A platform thread: a socket that a virtual one has read once is made non-blocking for good,
    /// and each wait of whoever uses it then costs a poll and a second call.
    static Thread sweeper(Runnable sweep) {
        return Thread.ofPlatform().name("kvferry-te-sweep").daemon().start(sweep);
    }

    private void sweep() {
        for (Slot slot : List.copyOf(slots.values())) {
            Peer peer = slot.peer;
            if (peer != null) {
                peer.sweep(RESTS, LONGEST_REST);
                Optional<SharedPeer> again = peer.attachAgain();
                if (again.isPresent()) {
                    watch(peer, again.get());
                }
                peer.shared().ifPresent(SharedPeer::follow);
                peer.detachUnused(FORGOTTEN_AFTER);
                if (peer.isUnused(FORGOTTEN_AFTER)) {
                    drop(peer);
                }
            }
        }
    }

    /// Copies into the memory of a process that was killed succeed, so its life is watched.
    private void watch(Peer peer, SharedPeer shared) {
        boolean watched = false;
        try {
            watchdog.repeat(() -> stillThere(peer, shared));
            watched = true;
        } finally {
            if (!watched) {
                peer.drop();
            }
        }
    }

    private boolean stillThere(Peer peer, SharedPeer shared) {
        boolean lives = shared.isAlive();
        if (peer.isDropped() || shared.marks().isClosed()) { // let go of, maybe just now
            return false;
        }
        if (!lives) { // not on the clock's thread: the end waits for copies that are under way
            var _ = Thread.ofVirtual().name("kvferry-te-drop").start(() -> drop(peer));
        }
        return lives;
    }

    /// Forgets a peer, so that the next question reaches whoever runs under its name now.
    void drop(Peer peer) {
        peer.drop();
        // At once: a slot that gets its next peer meanwhile must not go with that one.
        slots.computeIfPresent(peer.segmentName, (_, slot) -> slot.peer == peer ? null : slot);
    }

    public void close() {
        closed = true;
        again.cancel(ErrorCode.CLOSED);
        for (Slot slot : List.copyOf(slots.values())) {
            Peer peer = slot.peer;
            if (peer != null) {
                drop(peer);
            }
        }
    }
}
