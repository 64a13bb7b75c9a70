// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.serving.metrics.Samples;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.CacheEvent;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;

/// Publishes an engine's cache events as vLLM does: a PUB socket sends each batch as three frames
/// (topic, sequence number, msgpack), and a ROUTER socket answers a sequence number with all kept
/// batches from there on.
///
/// A full queue drops events. The waiting events and those kept for replays are then dropped too,
/// and subscribers are told, after a gap in the sequence numbers, that the cache was emptied: for a
/// while they know of fewer blocks than there are, but never of blocks that are no longer there.
///
/// Threading: [#accept] from any thread, never blocks. Owns the thread `kvferry-kv-events` and
/// ZeroMQ's.
public final class KvEventPublisher implements Consumer<CacheEvent>, AutoCloseable {
    /// Most bytes of batches that are kept.
    public static final long MAX_REPLAY_BYTES = 64 << 20;

    private static final Logger LOG = LoggerFactory.getLogger(KvEventPublisher.class);
    private static final int MAX_BATCH = 4096;
    private static final long IDLE_MILLIS = 20;
    private static final long CLOSE_MILLIS = 2_000;

    /// After which a client of the replays that answers nothing at all is cut off.
    private static final int HEARTBEAT_MILLIS = 15_000;

    /// Between a failure and the next turn.
    private static final long BACK_OFF_MILLIS = 100;

    /// Of a frame that a client sends: a subscription or a sequence number.
    private static final int MAX_RECEIVED_BYTES = 64 << 10;

    private final KvEventsConfig config;
    private final ZContext context = new ZContext();
    private final ZMQ.Socket publishes;
    private final @Nullable KvEventReplays replays;
    private final String endpoint;
    private final String replayEndpoint;
    private final byte[] topic;
    private final BlockingQueue<CacheEvent> queue;
    private final AtomicBoolean lost = new AtomicBoolean();
    private final LongAdder published = new LongAdder();
    private final LongAdder dropped = new LongAdder();
    private final Thread thread;
    private long sequence;
    private volatile boolean closed;

    private KvEventPublisher(KvEventsConfig config) {
        this.config = config;
        topic = config.topic().getBytes(StandardCharsets.UTF_8);
        queue = new ArrayBlockingQueue<>(config.maxQueueSize());
        context.setLinger(0);
        try {
            publishes = context.createSocket(SocketType.PUB);
            publishes.setSndHWM(config.hwm());
            BoundedFrames.bound(publishes, MAX_RECEIVED_BYTES);
            publishes.setHandshakeIvl(KvEventSubscriber.HANDSHAKE_MILLIS);
            endpoint = config.endpoint().attach(publishes);
            if (config.replayEndpoint().isPresent()) {
                var socket = context.createSocket(SocketType.ROUTER);
                replays = new KvEventReplays(socket, config.bufferSteps(), MAX_REPLAY_BYTES);
                BoundedFrames.bound(socket, MAX_RECEIVED_BYTES);
                socket.setHandshakeIvl(KvEventSubscriber.HANDSHAKE_MILLIS);
                socket.setHeartbeatIvl(HEARTBEAT_MILLIS);
                socket.setHeartbeatTimeout(HEARTBEAT_MILLIS);
                replayEndpoint = config.replayEndpoint().get().attach(socket);
            } else {
                replays = null;
                replayEndpoint = "";
            }
        } catch (RuntimeException e) {
            context.close();
            throw e;
        }
        // From here on the sockets are the thread's.
        thread = Thread.ofPlatform().daemon().name("kvferry-kv-events").unstarted(this::run);
    }

    /// Binds or connects the sockets and begins to publish.
    ///
    /// @throws KvFerryException BAD_CONFIG when an address cannot be used
    public static KvEventPublisher open(KvEventsConfig config) {
        var publisher = new KvEventPublisher(config);
        warnIfOpen(config.endpoint());
        config.replayEndpoint().ifPresent(KvEventPublisher::warnIfOpen);
        publisher.thread.start();
        return publisher;
    }

    private static void warnIfOpen(ZmqAddress address) {
        if (address.isBound() && !address.isLoopback()) {
            LOG.warn(
                    "KV events, which hold the token ids of prompts, are open to everybody who reaches {}",
                    address);
        }
    }

    /// Where the events are, with the port that was drawn.
    public String endpoint() {
        return endpoint;
    }

    /// Where earlier ones can be asked for; empty when they cannot.
    public String replayEndpoint() {
        return replayEndpoint;
    }

    @Override
    public void accept(CacheEvent event) {
        if (KvEventWriter.hasForm(event) && !queue.offer(event)) {
            dropped.increment();
            lost.set(true);
        }
    }

    /// Adds what it counts to a scrape.
    public void write(Samples samples) {
        samples.counter(
                        "kvferry_kv_events_published",
                        "Cache events that were published.",
                        published.sum())
                .counter(
                        "kvferry_kv_events_dropped",
                        "Cache events that were lost because the queue of the publisher was full.",
                        dropped.sum());
    }

    private void run() {
        while (!closed) {
            try {
                var events = next();
                if (lost.get() || !events.isEmpty()) {
                    publish(events);
                }
                if (replays != null) {
                    replays.turn();
                }
            } catch (InterruptedException e) {
                break;
            } catch (Throwable e) { // one turn is lost, not the thread
                LOG.warn("KV events could not be published or replayed", e);
                if (!backOff()) {
                    break;
                }
            }
        }
        context.close();
    }

    /// @return false when interrupted
    private static boolean backOff() {
        try {
            Thread.sleep(BACK_OFF_MILLIS);
            return true;
        } catch (InterruptedException _) {
            return false;
        }
    }

    /// The waiting events as one batch; empty when none came for a while.
    private List<CacheEvent> next() throws InterruptedException {
        var events = new ArrayList<CacheEvent>();
        boolean replaying = replays != null && replays.isBusy();
        var first = queue.poll(replaying ? 1 : IDLE_MILLIS, TimeUnit.MILLISECONDS);
        if (first != null) {
            events.add(first);
            queue.drainTo(events, MAX_BATCH - 1);
        }
        return events;
    }

    private void publish(List<CacheEvent> events) {
        if (!lost.getAndSet(false)) {
            send(events);
            return;
        }
        // The events that still wait are useless without the lost ones between them.
        var waiting = new ArrayList<CacheEvent>();
        queue.drainTo(waiting);
        dropped.add(events.size() + waiting.size());
        if (replays != null) {
            replays.clear();
        }
        sequence++;
        send(List.of(KvEventWriter.CLEARED));
    }

    private void send(List<CacheEvent> events) {
        long number = sequence++;
        var payload = KvEventWriter.write(events, System.currentTimeMillis() / 1e3);
        publishes.sendMore(topic);
        publishes.sendMore(ByteBuffer.allocate(Long.BYTES).putLong(number).array());
        publishes.send(payload);
        published.add(events.size());
        if (replays != null) {
            replays.keep(number, payload);
        }
    }

    @Override
    public void close() {
        closed = true;
        try {
            thread.join(CLOSE_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
