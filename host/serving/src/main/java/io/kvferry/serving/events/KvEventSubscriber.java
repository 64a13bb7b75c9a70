// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZEvent;
import org.zeromq.ZMQ;
import org.zeromq.ZMonitor;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Follows the KV events of one engine. Earlier events become invalid when the connection is lost
/// or reopened (the engine may have restarted), when a sequence number is missing, and when the
/// numbers decrease (behind a broker the engine may have restarted, or there are two engines). If
/// the engine supports replay, its kept batches are then read, at most once a second.
///
/// An exception of a socket or of the listener also invalidates all events; following resumes after
/// a pause.
///
/// Threading: calls the listener on its own thread, `kvferry-kv-events-N`.
public final class KvEventSubscriber implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(KvEventSubscriber.class);
    private static final AtomicInteger NUMBER = new AtomicInteger();

    /// A batch is the changes of one step: some 100 bytes for each block.
    static final int MAX_MESSAGE_BYTES = 8 << 20;

    /// Most that waits to be read; what is more waits at the engine, which drops batches when it
    /// has too many, and gaps are seen.
    static final long QUEUED_BYTES = 256 << 20;

    static final int QUEUED_BATCHES = (int) (QUEUED_BYTES / MAX_MESSAGE_BYTES);
    private static final int POLL_MILLIS = 100;

    /// A greeting that stalls is given up and tried again; JeroMQ's own default is 30 s.
    static final int HANDSHAKE_MILLIS = 2_000;

    private static final int HEARTBEAT_MILLIS = 1_000;
    private static final int HEARTBEAT_LIMIT_MILLIS = 5_000;
    private static final int RECONNECT_MILLIS = 100;
    private static final int RECONNECT_MAX_MILLIS = 1_000;
    private static final long REPLAY_PAUSE_NANOS = Duration.ofSeconds(1).toNanos();

    /// Batches after which changes of the connection are looked at again.
    private static final int BATCHES_IN_A_ROW = 1_000;

    /// Between two tries after a failure, doubled each time until a batch was heard.
    private static final long MIN_PAUSE_MILLIS = 1_000;

    private static final long MAX_PAUSE_MILLIS = 60_000;
    private static final Duration REPLAY_LIMIT = Duration.ofSeconds(10);
    private static final long CLOSE_MILLIS = 2_000;
    private static final byte[] EMPTY = {};
    private static final long UNKNOWN = -1;

    private final Source source;
    private final Listener listener;
    private final Thread thread;
    private final CountDownLatch closing = new CountDownLatch(1);
    private long pauseMillis = MIN_PAUSE_MILLIS;

    /// The next sequence number, as far as it is known.
    private long expected = UNKNOWN;

    /// Of the last batch that was published; replayed ones do not count.
    private long live = UNKNOWN;

    private boolean wantsReplay;
    private long nextReplayNanos = System.nanoTime();

    /// Where an engine publishes.
    ///
    /// @param replay where it can be asked for earlier events
    /// @param topic first frame of its messages begins with it
    public record Source(ZmqAddress events, Optional<ZmqAddress> replay, String topic) {}

    /// Takes what is heard; must not block for long.
    public interface Listener {
        void heard(List<KvEvent> events);

        /// All events received before are invalid.
        void lost(String why);
    }

    public KvEventSubscriber(Source source, Listener listener) {
        this.source = source;
        this.listener = listener;
        thread =
                Thread.ofPlatform()
                        .daemon()
                        .name("kvferry-kv-events-" + NUMBER.getAndIncrement())
                        .start(this::run);
    }

    private void run() {
        while (!closed()) {
            try (var context = new ZContext()) {
                context.setLinger(0);
                follow(context);
            } catch (RuntimeException | Error e) { // of a socket, of memory, of the listener
                LOG.warn(
                        "the KV events of {} are lost; following them again in {} ms",
                        source.events(),
                        pauseMillis,
                        e);
                lose("failed");
                pause();
            }
        }
        lose("closed");
    }

    private void lose(String why) {
        try {
            start(why);
        } catch (RuntimeException | Error e) {
            LOG.warn("{}: the listener does not hear of '{}'", source.events(), why, e);
        }
    }

    private void pause() {
        try {
            closing.await(pauseMillis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            LOG.debug("unexpected interrupt", e);
        }
        pauseMillis = Math.min(2 * pauseMillis, MAX_PAUSE_MILLIS);
    }

    private void follow(ZContext context) {
        var events = context.createSocket(SocketType.SUB);
        events.setRcvHWM(QUEUED_BATCHES);
        BoundedFrames.bound(events, MAX_MESSAGE_BYTES);
        events.setHandshakeIvl(HANDSHAKE_MILLIS);
        events.setHeartbeatIvl(HEARTBEAT_MILLIS);
        events.setHeartbeatTimeout(HEARTBEAT_LIMIT_MILLIS);
        events.setReconnectIVL(RECONNECT_MILLIS);
        events.setReconnectIVLMax(RECONNECT_MAX_MILLIS);
        // Not of the field: the constructor may not have set it yet.
        var state = "inproc://state-" + Thread.currentThread().getName();
        events.monitor(state, ZMQ.EVENT_CONNECTED | ZMQ.EVENT_DISCONNECTED);
        var states = context.createSocket(SocketType.PAIR);
        states.connect(state);
        events.subscribe(source.topic().getBytes(StandardCharsets.UTF_8));
        events.connect(source.events().text());
        follow(context, events, states);
    }

    private void follow(ZContext context, ZMQ.Socket events, ZMQ.Socket states) {
        try (var poller = context.createPoller(2)) {
            poller.register(events, ZMQ.Poller.POLLIN);
            poller.register(states, ZMQ.Poller.POLLIN);
            while (!closed()) {
                poller.poll(POLL_MILLIS);
                var changed = ZEvent.recv(states, ZMQ.DONTWAIT);
                while (changed != null) {
                    start(
                            changed.getEvent() == ZMonitor.Event.CONNECTED
                                    ? "connected"
                                    : "disconnected");
                    changed = ZEvent.recv(states, ZMQ.DONTWAIT);
                }
                replayIfWanted(context);
                takeWhatIsThere(events);
                replayIfWanted(context);
            }
        }
    }

    private boolean closed() {
        return closing.getCount() == 0;
    }

    private void takeWhatIsThere(ZMQ.Socket events) {
        for (int i = 0; i < BATCHES_IN_A_ROW && !closed(); i++) {
            var frames = receive(events);
            if (frames == null) {
                return;
            }
            take(frames);
        }
    }

    private static @Nullable List<byte[]> receive(ZMQ.Socket socket) {
        var first = socket.recv(ZMQ.DONTWAIT);
        if (first == null) {
            return null;
        }
        var frames = new ArrayList<byte[]>();
        frames.add(first);
        while (socket.hasReceiveMore()) {
            frames.add(socket.recv());
        }
        return frames;
    }

    private void start(String why) {
        startOver(why);
        live = UNKNOWN;
        wantsReplay = why.equals("connected");
    }

    private void startOver(String why) {
        LOG.debug("{}: {}", source.events(), why);
        listener.lost(why);
        expected = UNKNOWN;
        wantsReplay = true;
    }

    /// @param frames topic, sequence number, batch
    private void take(List<byte[]> frames) {
        if (frames.size() != 3 || frames.get(1).length != Long.BYTES) {
            LOG.debug("{}: a message of {} frames", source.events(), frames.size());
            return;
        }
        long number = ByteBuffer.wrap(frames.get(1)).getLong();
        if (number < 0 || number == Long.MAX_VALUE) {
            LOG.debug("{}: a batch with the number {}", source.events(), number);
            return;
        }
        if (number <= live) {
            startOver("batch " + number + " came after " + live);
        } else if (expected != UNKNOWN && number > expected) {
            startOver("batches " + expected + " to " + (number - 1) + " are missing");
        }
        live = number;
        if (expected == UNKNOWN || number >= expected) {
            apply(number, frames.get(2));
        } // else it was replayed
    }

    private void apply(long number, byte[] batch) {
        expected = number + 1;
        try {
            listener.heard(KvEventReader.read(batch));
            pauseMillis = MIN_PAUSE_MILLIS;
        } catch (KvFerryException e) {
            LOG.warn("{}: {}", source.events(), e.getMessage());
            listener.lost("unreadable");
        }
    }

    /// Asks for everything that the engine has kept.
    private void replayIfWanted(ZContext context) {
        if (!wantsReplay || source.replay().isEmpty() || System.nanoTime() - nextReplayNanos < 0) {
            return;
        }
        wantsReplay = false;
        nextReplayNanos = System.nanoTime() + REPLAY_PAUSE_NANOS;
        if (expected != UNKNOWN) {
            listener.lost("replayed");
            expected = UNKNOWN;
        }
        try (var asks = context.createSocket(SocketType.DEALER)) {
            asks.setReceiveTimeOut(POLL_MILLIS);
            BoundedFrames.bound(asks, MAX_MESSAGE_BYTES);
            asks.setHandshakeIvl(HANDSHAKE_MILLIS);
            asks.connect(source.replay().get().text());
            asks.sendMore(EMPTY);
            asks.send(ByteBuffer.allocate(Long.BYTES).putLong(0).array());
            long end = System.nanoTime() + REPLAY_LIMIT.toNanos();
            while (!closed() && System.nanoTime() - end < 0) {
                var first = asks.recv();
                if (first != null && !takeReplayed(asks)) {
                    return;
                }
            }
            if (!closed()) {
                LOG.warn("{}: no whole replay within {}", source.replay().get(), REPLAY_LIMIT);
            }
        }
    }

    /// @return false at the end of the replay
    private boolean takeReplayed(ZMQ.Socket asks) {
        var frames = new ArrayList<byte[]>();
        while (asks.hasReceiveMore()) {
            frames.add(Objects.requireNonNullElse(asks.recv(), EMPTY));
        }
        if (frames.size() != 2 || frames.getFirst().length != Long.BYTES) {
            return true;
        }
        long number = ByteBuffer.wrap(frames.getFirst()).getLong();
        if (number < 0 || number == Long.MAX_VALUE) {
            return false;
        }
        if (expected != UNKNOWN && number != expected) {
            listener.lost("batches were not kept");
        }
        apply(number, frames.getLast());
        return true;
    }

    @Override
    public void close() {
        closing.countDown();
        try {
            thread.join(CLOSE_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
