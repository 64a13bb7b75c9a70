// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Publishers that do not count as they should, over the socket of a test: what a subscriber holds
/// is never older than the last loss.
@Timeout(90)
class KvEventPublishersTest {
    private static final long SECONDS = 30;

    private final List<AutoCloseable> open = new ArrayList<>();
    private final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
    private final ZContext context = new ZContext();
    private volatile boolean over;

    @AfterEach
    void close() throws Exception {
        for (var one : open.reversed()) {
            one.close();
        }
        context.close();
    }

    private ZMQ.Socket publisher(int queued) {
        var socket = context.createSocket(SocketType.PUB);
        socket.setHandshakeIvl(KvEventSubscriber.HANDSHAKE_MILLIS);
        socket.setSndHWM(queued);
        socket.setLinger(0);
        socket.bind("tcp://127.0.0.1:*");
        return socket;
    }

    private void subscribe(ZMQ.Socket publisher, Optional<String> replay) {
        var source =
                new KvEventSubscriber.Source(
                        new ZmqAddress(publisher.getLastEndpoint()),
                        replay.map(ZmqAddress::new),
                        "");
        open.add(
                new KvEventSubscriber(
                        source,
                        new KvEventSubscriber.Listener() {
                            @Override
                            public void heard(List<KvEvent> events) {
                                for (var event : events) {
                                    heard.add("" + ((KvEvent.Removed) event).blocks()[0]);
                                }
                            }

                            @Override
                            public void lost(String why) {
                                heard.add("lost: " + why);
                            }
                        }));
    }

    /// A batch whose one event names `block`.
    private static void send(ZMQ.Socket socket, long sequence, long block) {
        var event =
                new CacheEvent.Removed(
                        "engine", Tier.DEVICE, List.of(new BlockHash(0, 0, 0, block)));
        socket.sendMore("");
        socket.sendMore(ByteBuffer.allocate(Long.BYTES).putLong(sequence).array());
        socket.send(KvEventWriter.write(List.of(event), 0));
    }

    private String next() throws InterruptedException {
        var next = heard.poll(SECONDS, TimeUnit.SECONDS);
        assertThat(next).as("something is heard").isNotNull();
        return String.valueOf(next);
    }

    /// Sends batches until one is heard.
    ///
    /// @return the number of the next batch
    private long connect(ZMQ.Socket publisher, long first) throws InterruptedException {
        long sequence = first;
        while (!"0".equals(heard.poll(50, TimeUnit.MILLISECONDS))) {
            send(publisher, sequence++, 0);
        }
        send(publisher, sequence++, -1);
        while (!next().equals("-1")) {
            continue; // those that were sent meanwhile
        }
        return sequence;
    }

    @Test
    void oneThatStartsAgainBehindABrokerIsFollowedAnew() throws Exception {
        var publisher = publisher(1000);
        subscribe(publisher, Optional.empty());
        long sequence = connect(publisher, 50);
        send(publisher, 0, 7);
        send(publisher, 1, 8);
        assertThat(next()).isEqualTo("lost: batch 0 came after " + (sequence - 1));
        assertThat(next()).isEqualTo("7");
        assertThat(next()).isEqualTo("8");
    }

    @Test
    void impossibleNumbersAreIgnored() throws Exception {
        var publisher = publisher(1000);
        subscribe(publisher, Optional.empty());
        long sequence = connect(publisher, 0);
        for (long number : new long[] {-1, Long.MIN_VALUE, Long.MAX_VALUE}) {
            send(publisher, number, 9);
        }
        publisher.sendMore("");
        publisher.send("two frames");
        send(publisher, sequence, 1);
        send(publisher, sequence + 1, 2);
        assertThat(next()).isEqualTo("1");
        assertThat(next()).isEqualTo("2");
    }

    /// The subscriber forgets all blocks, and does not ask the engine for a replay again and again.
    @Test
    void twoWithOneNameAreVoidWithFewReplays() throws Exception {
        var publisher = publisher(1000);
        var asked = new AtomicInteger();
        var replays = context.createSocket(SocketType.ROUTER);
        replays.setHandshakeIvl(KvEventSubscriber.HANDSHAKE_MILLIS);
        replays.setReceiveTimeOut(100);
        replays.setLinger(0);
        replays.bind("tcp://127.0.0.1:*");
        var address = replays.getLastEndpoint();
        var answering = Thread.ofPlatform().start(() -> answer(replays, asked));
        open.add(() -> {
            over = true;
            answering.join();
        });
        long begin = System.nanoTime();
        subscribe(publisher, Optional.of(address));
        long one = connect(publisher, 1000);
        for (int i = 0; i < 100; i++) {
            send(publisher, one + i, i);
            send(publisher, i, i);
        }
        send(publisher, one + 100, 4711);
        int voids = 0;
        for (var told = next(); !told.equals("4711"); told = next()) {
            voids += told.startsWith("lost: ") ? 1 : 0;
        }
        assertThat(voids).isGreaterThanOrEqualTo(200);
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin);
        assertThat(asked.get()).isBetween(1, (int) seconds + 2);
    }

    /// Answers that nothing was kept.
    private void answer(ZMQ.Socket replays, AtomicInteger asked) {
        while (!over) {
            var client = replays.recv();
            if (client == null) {
                continue;
            }
            while (replays.hasReceiveMore()) {
                replays.recv();
            }
            asked.incrementAndGet();
            replays.sendMore(client);
            replays.sendMore("");
            replays.sendMore(ByteBuffer.allocate(Long.BYTES).putLong(-1).array());
            replays.send("");
        }
    }

    /// Events that do not fit into the queue are dropped, and the subscriber notices.
    @Test
    void oneThatFloodsLeavesNoGapThatIsNotTold() throws Exception {
        var publisher = publisher(64);
        subscribe(publisher, Optional.empty());
        long sequence = connect(publisher, 0);
        for (int i = 0; i < 50_000; i++) {
            send(publisher, sequence, sequence);
            sequence++;
        }
        long last = Long.MIN_VALUE;
        boolean told = true;
        boolean over = false;
        while (!over) {
            send(publisher, sequence, -2); // again and again: it may be dropped
            sequence++;
            for (var next = heard.poll(50, TimeUnit.MILLISECONDS);
                    next != null;
                    next = heard.poll(50, TimeUnit.MILLISECONDS)) {
                if (next.startsWith("lost: ")) {
                    told = true;
                } else if (next.equals("-2")) {
                    over = true;
                } else {
                    long number = Long.parseLong(next);
                    assertThat(told || number == last + 1).as("%s after %s", number, last).isTrue();
                    last = number;
                    told = false;
                }
            }
        }
    }
}
