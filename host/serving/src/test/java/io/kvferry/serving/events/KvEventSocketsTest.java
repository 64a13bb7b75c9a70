// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/// KV events from a publisher to a subscriber: in order, and void as soon as something is missing.
@Timeout(300)
class KvEventSocketsTest {
    private static final long SECONDS = 20;

    private final List<AutoCloseable> open = new ArrayList<>();
    private final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
    private final AtomicBoolean failing = new AtomicBoolean();

    @AfterEach
    void close() throws Exception {
        for (var one : open.reversed()) {
            one.close();
        }
    }

    private KvEventPublisher publisher(String endpoint, Map<String, Object> more) {
        var json = new HashMap<String, Object>(more);
        json.put("enable_kv_cache_events", true);
        json.put("endpoint", endpoint);
        var publisher = KvEventPublisher.open(KvEventsConfig.of(json).orElseThrow());
        open.add(publisher);
        return publisher;
    }

    private void subscribe(String endpoint, Optional<String> replay) {
        var source =
                new KvEventSubscriber.Source(
                        new ZmqAddress(endpoint), replay.map(ZmqAddress::new), "");
        open.add(
                new KvEventSubscriber(
                        source,
                        new KvEventSubscriber.Listener() {
                            @Override
                            public void heard(List<KvEvent> events) {
                                if (failing.getAndSet(false)) {
                                    throw new AssertionError("injected into the listener");
                                }
                                for (var event : events) {
                                    if (event instanceof KvEvent.Removed(long[] blocks)) {
                                        heard.add("" + blocks[0]);
                                    } else if (event instanceof KvEvent.Cleared) {
                                        heard.add("cleared");
                                    }
                                }
                            }

                            @Override
                            public void lost(String why) {
                                heard.add(why);
                            }
                        }));
    }

    private static CacheEvent event(long number) {
        return new CacheEvent.Removed(
                "engine", Tier.DEVICE, List.of(new BlockHash(0, 0, 0, number)));
    }

    private void assertHeard(String... expected) throws InterruptedException {
        for (var one : expected) {
            assertThat(heard.poll(SECONDS, TimeUnit.SECONDS)).isEqualTo(one);
        }
    }

    /// Publishes until the subscriber hears it: a subscription takes effect some time after the
    /// connection, which may break and be made again before. Nothing is under way afterwards.
    private void publishUntilHeard(KvEventPublisher publisher) throws InterruptedException {
        long number = 0;
        do {
            publisher.accept(event(--number));
        } while (!isHeard(number));
    }

    /// Takes what is heard until it is that, or nothing for a while.
    private boolean isHeard(long number) throws InterruptedException {
        String next;
        do {
            next = heard.poll(50, TimeUnit.MILLISECONDS);
        } while (next != null && !next.equals("" + number));
        return next != null;
    }

    @Test
    void arriveInOrder() throws Exception {
        var publisher = publisher("tcp://127.0.0.1:*", Map.of());
        subscribe(publisher.endpoint(), Optional.empty());
        assertHeard("connected");
        publishUntilHeard(publisher);
        for (int i = 1; i <= 1000; i++) {
            publisher.accept(event(i));
        }
        for (int i = 1; i <= 1000; i++) {
            assertHeard("" + i);
        }
    }

    @Test
    void areFollowedAgainAfterAnErrorOfTheListener() throws Exception {
        var publisher = publisher("tcp://127.0.0.1:*", Map.of());
        subscribe(publisher.endpoint(), Optional.empty());
        assertHeard("connected");
        publishUntilHeard(publisher);
        failing.set(true);
        publisher.accept(event(1));
        assertHeard("failed", "connected");
        publishUntilHeard(publisher);
    }

    @Test
    void areReplayedToALateSubscriber() throws Exception {
        var publisher =
                publisher("tcp://127.0.0.1:*", Map.of("replay_endpoint", "tcp://127.0.0.1:*"));
        for (int i = 1; i <= 300; i++) {
            publisher.accept(event(i));
        }
        subscribe(publisher.endpoint(), Optional.of(publisher.replayEndpoint()));
        assertHeard("connected");
        for (int i = 1; i <= 300; i++) {
            assertHeard("" + i);
        }
        publishUntilHeard(publisher);
    }

    @Test
    void areVoidWhenThePublisherRestarts() throws Exception {
        var endpoint = "tcp://127.0.0.1:" + freePort();
        var first = publisher(endpoint, Map.of());
        subscribe(endpoint, Optional.empty());
        assertHeard("connected");
        publishUntilHeard(first);
        first.close();
        assertHeard("disconnected");
        publishUntilHeard(publisher(endpoint, Map.of()));
    }

    @Test
    void areVoidWhenBatchesAreMissing() throws Exception {
        try (var context = new ZContext()) {
            var publishes = context.createSocket(SocketType.PUB);
            publishes.setHandshakeIvl(KvEventSubscriber.HANDSHAKE_MILLIS);
            publishes.bind("tcp://127.0.0.1:*");
            subscribe(publishes.getLastEndpoint(), Optional.empty());
            assertHeard("connected");
            long sequence = 0;
            do {
                sequence++;
                send(publishes, sequence - 1, -sequence);
            } while (!isHeard(-sequence));
            send(publishes, sequence, 2);
            send(publishes, sequence + 2, 3);
            send(publishes, sequence + 1, 4);
            send(publishes, sequence + 3, 5);
            assertHeard(
                    "2",
                    "batches " + (sequence + 1) + " to " + (sequence + 1) + " are missing",
                    "3",
                    "batch " + (sequence + 1) + " came after " + (sequence + 2),
                    "4",
                    "batches " + (sequence + 2) + " to " + (sequence + 2) + " are missing",
                    "5");
        }
    }

    private static void send(ZMQ.Socket socket, long sequence, long number) {
        socket.sendMore("");
        socket.sendMore(ByteBuffer.allocate(Long.BYTES).putLong(sequence).array());
        socket.send(KvEventWriter.write(List.of(event(number)), 0));
    }

    @Test
    void emptyTheCacheAfterAGapWhenTheQueueWasFull() throws Exception {
        var publisher =
                publisher(
                        "tcp://127.0.0.1:*",
                        Map.of("max_queue_size", 1L, "replay_endpoint", "tcp://127.0.0.1:*"));
        subscribe(publisher.endpoint(), Optional.of(publisher.replayEndpoint()));
        assertHeard("connected");
        publishUntilHeard(publisher);
        for (int i = 0; i < 100_000; i++) {
            publisher.accept(event(1));
        }
        var seen = new ArrayList<String>();
        while (seen.stream().noneMatch(text -> text.contains("missing"))) {
            var next = heard.poll(SECONDS, TimeUnit.SECONDS);
            assertThat(next).as("after %s", seen.size()).isNotNull();
            seen.add(String.valueOf(next));
        }
        assertHeard("cleared");
    }

    @Test
    void refuseAnAddressThatIsTaken() throws Exception {
        try (var taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            assertThatThrownBy(() -> publisher("tcp://127.0.0.1:" + taken.getLocalPort(), Map.of()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                    .hasMessageContaining("" + taken.getLocalPort());
        }
    }
}
