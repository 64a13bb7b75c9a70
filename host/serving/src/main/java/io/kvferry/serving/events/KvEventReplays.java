// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import zmq.ZError;

import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;

/// The latest batches of a publisher, and the clients to which they are replayed.
///
/// Memory is bounded in bytes, whatever clients do. A client has a few batches in its queue and
/// gets more when it has taken those. Queues share the arrays of the kept batches. Arrays that are
/// no longer kept but may still be queued count until the garbage collector has freed them; while
/// they exceed the limit, nothing is sent.
///
/// Threading: the publisher's thread.
final class KvEventReplays {
    /// Batches that wait for one client.
    static final int QUEUED = 64;

    private static final Logger LOG = LoggerFactory.getLogger(KvEventReplays.class);
    private static final int CLIENTS = 64;
    private static final long STALLED_NANOS = Duration.ofSeconds(30).toNanos();

    private static final long WARN_AFTER_NANOS = Duration.ofSeconds(2).toNanos();

    /// Between two collections while too much of what was sent is in memory.
    private static final long COLLECT_NANOS = Duration.ofSeconds(5).toNanos();

    /// Requests that are taken before events are published again.
    private static final int REQUESTS_PER_TURN = 16;

    private static final byte[] END = ByteBuffer.allocate(Long.BYTES).putLong(-1).array();
    private static final byte[] EMPTY = {};
    private static final int NOW = ZMQ.DONTWAIT;
    private static final int NOW_AND_MORE = ZMQ.DONTWAIT | ZMQ.SNDMORE;

    private final ZMQ.Socket socket;
    private final int mostBatches;
    private final long mostBytes;
    private final NavigableMap<Long, Batch> kept = new TreeMap<>();
    private long keptBytes;
    private final Map<ByteBuffer, Cursor> cursors = new LinkedHashMap<>();

    /// Batches that are kept no longer, and may still be in queues.
    private final Set<Dropped> dropped = new HashSet<>();

    private final ReferenceQueue<byte[]> collected = new ReferenceQueue<>();
    private long droppedBytes;

    /// Since when too much of what was sent is in memory; 0 when it is not.
    private long fullSince;

    private long collectedAt;
    private boolean saidFull;

    private static final class Batch {
        final byte[] payload;
        boolean sent;

        Batch(byte[] payload) {
            this.payload = payload;
        }
    }

    private static final class Dropped extends WeakReference<byte[]> {
        final int bytes;

        Dropped(byte[] payload, ReferenceQueue<byte[]> queue) {
            super(payload, queue);
            bytes = payload.length;
        }
    }

    /// What a client gets next, and up to where.
    private static final class Cursor {
        long next;
        final long end;
        long progressNanos = System.nanoTime();

        Cursor(long next, long end) {
            this.next = next;
            this.end = end;
        }
    }

    /// @param socket a ROUTER, this object's from now on
    /// @param mostBatches that are kept, of at most `mostBytes`
    KvEventReplays(ZMQ.Socket socket, int mostBatches, long mostBytes) {
        this.socket = socket;
        this.mostBatches = mostBatches;
        this.mostBytes = mostBytes;
        socket.setSndHWM(QUEUED);
        socket.setRouterMandatory(true); // reports full queues and lost clients
    }

    void keep(long number, byte[] payload) {
        kept.put(number, new Batch(payload));
        keptBytes += payload.length;
        while (kept.size() > mostBatches || keptBytes > mostBytes) {
            drop(kept.pollFirstEntry().getValue());
        }
    }

    /// Drops all batches.
    void clear() {
        kept.values().forEach(this::drop);
        kept.clear();
    }

    private void drop(Batch batch) {
        keptBytes -= batch.payload.length;
        if (batch.sent) {
            dropped.add(new Dropped(batch.payload, collected));
            droppedBytes += batch.payload.length;
        }
    }

    /// Bytes of batches in memory, in queues of clients too.
    long bytes() {
        for (var one = collected.poll(); one != null; one = collected.poll()) {
            if (one instanceof Dropped gone && dropped.remove(gone)) {
                droppedBytes -= gone.bytes;
            }
        }
        return keptBytes + droppedBytes;
    }

    /// Whether clients wait for more.
    boolean isBusy() {
        return !cursors.isEmpty();
    }

    /// Takes requests, and sends as much as there is room for.
    void turn() {
        takeRequests();
        boolean full = bytes() - keptBytes > mostBytes;
        long now = System.nanoTime();
        if (!full) {
            fullSince = 0;
            saidFull = false;
        } else if (fullSince == 0) {
            fullSince = now | 1;
            collectedAt = now;
            System.gc(); // batches that clients have read count until they are collected
        } else if (now - collectedAt > COLLECT_NANOS) {
            collectedAt = now;
            System.gc();
        } else if (!saidFull && now - fullSince > WARN_AFTER_NANOS) {
            saidFull = true;
            LOG.warn(
                    "clients do not read {} MiB of replayed KV events; nothing is replayed until they do",
                    droppedBytes >> 20);
        }
        if (full) {
            cursors.values().removeIf(KvEventReplays::isStalled);
        } else {
            cursors.entrySet().removeIf(entry -> isDone(entry.getKey().array(), entry.getValue()));
        }
    }

    /// Frames of a request: client, empty, first sequence number.
    private void takeRequests() {
        for (int i = 0; i < REQUESTS_PER_TURN; i++) {
            var client = socket.recv(ZMQ.DONTWAIT);
            if (client == null) {
                return;
            }
            var frames = new ArrayList<byte[]>();
            while (socket.hasReceiveMore()) {
                frames.add(socket.recv());
            }
            if (frames.size() != 2 || frames.getLast().length != Long.BYTES) {
                LOG.debug("a request for KV events has {} frames", frames.size() + 1);
                continue;
            }
            long from = ByteBuffer.wrap(frames.getLast()).getLong();
            long end = kept.isEmpty() ? 0 : kept.lastKey() + 1;
            if (cursors.size() < CLIENTS) {
                cursors.put(ByteBuffer.wrap(client), new Cursor(from, end));
            } else {
                LOG.debug("{} clients get KV events again already", CLIENTS);
            }
        }
    }

    /// Sends to a client until it has everything, its queue is full, or it is gone.
    ///
    /// @return whether the replay to this client is over
    private boolean isDone(byte[] client, Cursor cursor) {
        try {
            for (var entry : kept.tailMap(cursor.next).entrySet()) {
                long number = entry.getKey();
                var batch = entry.getValue();
                if (number >= cursor.end) {
                    break;
                }
                if (!reply(
                        client,
                        ByteBuffer.allocate(Long.BYTES).putLong(number).array(),
                        batch.payload)) {
                    return isStalled(cursor);
                }
                batch.sent = true;
                cursor.next = number + 1;
                cursor.progressNanos = System.nanoTime();
            }
            return reply(client, END, EMPTY) || isStalled(cursor);
        } catch (ZMQException e) {
            if (e.getErrorCode() == ZError.EHOSTUNREACH) {
                return true;
            }
            throw e;
        }
    }

    private static boolean isStalled(Cursor cursor) {
        return System.nanoTime() - cursor.progressNanos > STALLED_NANOS;
    }

    /// Frames of each reply: client, empty, sequence number, batch; the last one has the number -1
    /// and no batch.
    ///
    /// @return false when the client's queue is full
    private boolean reply(byte[] client, byte[] number, byte[] payload) {
        if (!socket.send(client, NOW_AND_MORE)) {
            return false;
        }
        socket.send(EMPTY, NOW_AND_MORE);
        socket.send(number, NOW_AND_MORE);
        socket.send(payload, NOW);
        return true;
    }
}
