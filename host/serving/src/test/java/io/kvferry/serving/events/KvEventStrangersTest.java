// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.zeromq.SocketType;
import org.zeromq.ZContext;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/// The ports of the KV events with invalid frames.
@Timeout(300)
class KvEventStrangersTest {
    private static final int MUTATED = 500;

    private static final String GREETING = "ff00000000000000017f03004e554c4c" + "00".repeat(48);

    /// Lengths that are negative as numbers of 64 bits, or of 32, in a message and in a command.
    private static final List<String> LENGTHS =
            List.of(
                    "02ffffffffffffffff",
                    "06ffffffffffffffff",
                    "028000000080000001",
                    "02ffffffff7fffffff",
                    "02fffffffff0000000",
                    "020000000080000001",
                    "027fffffffffffffff");

    private static String ready(String type) {
        return "04190552454144590b536f636b65742d5479706500000003"
                + HexFormat.of().formatHex(type.getBytes(StandardCharsets.US_ASCII));
    }

    @Test
    void framesOfImpossibleLengthsNeitherEndNorOccupyThePorts() throws Exception {
        long seed = System.nanoTime();
        var config =
                KvEventsConfig.of(
                                Map.of(
                                        "enable_kv_cache_events",
                                        true,
                                        "endpoint",
                                        "tcp://127.0.0.1:*",
                                        "replay_endpoint",
                                        "tcp://127.0.0.1:*"))
                        .orElseThrow();
        try (var publisher = KvEventPublisher.open(config);
                var context = new ZContext()) {
            attack(publisher.endpoint(), ready("SUB"), new Random(seed));
            attack(publisher.replayEndpoint(), ready("REQ"), new Random(seed));
            TimeUnit.MILLISECONDS.sleep(500);
            var limit = Deadline.in(Duration.ofSeconds(60)); // a busy machine is late with them
            while (isBusy()) {
                assertThat(limit.passed()).as("busy while nothing comes, seed %d", seed).isFalse();
            }

            publisher.accept(
                    new CacheEvent.Removed(
                            "engine", Tier.DEVICE, List.of(new BlockHash(0, 0, 0, 1))));
            var asks = context.createSocket(SocketType.REQ);
            asks.setReceiveTimeOut(60_000);
            asks.connect(publisher.replayEndpoint());
            asks.send(ByteBuffer.allocate(Long.BYTES).array());
            assertThat(asks.recv()).as("a replay").isNotNull();

            var events = context.createSocket(SocketType.SUB);
            events.setReceiveTimeOut(100);
            events.subscribe("");
            events.connect(publisher.endpoint());
            byte[] heard = null;
            var listening = Deadline.in(Duration.ofSeconds(90));
            for (int i = 0; heard == null && !listening.passed(); i++) {
                publisher.accept(
                        new CacheEvent.Removed(
                                "engine", Tier.DEVICE, List.of(new BlockHash(0, 0, 0, i))));
                heard = events.recv();
            }
            assertThat(heard).as("an event").isNotNull();
        }
    }

    private static void attack(String endpoint, String ready, Random random) throws IOException {
        int port = URI.create(endpoint).getPort();
        for (var length : LENGTHS) {
            for (var before : List.of("", ready, ready + "0000")) {
                send(port, HexFormat.of().parseHex(GREETING + before + length));
            }
        }
        for (int i = 0; i < MUTATED; i++) {
            var bytes =
                    HexFormat.of()
                            .parseHex(
                                    GREETING
                                            + ready
                                            + "0001010000"
                                            + LENGTHS.get(random.nextInt(LENGTHS.size())));
            for (int n = random.nextInt(4); n > 0; n--) {
                bytes[64 + random.nextInt(bytes.length - 64)] = (byte) random.nextInt(256);
            }
            send(port, bytes);
        }
    }

    private static void send(int port, byte[] bytes) throws IOException {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.getOutputStream().write(bytes);
        }
    }

    /// Whether ZeroMQ uses a quarter of a processor, or more, in two seconds.
    private static boolean isBusy() throws InterruptedException {
        long before = ioNanos();
        TimeUnit.SECONDS.sleep(2);
        return ioNanos() - before >= TimeUnit.SECONDS.toNanos(1) / 2;
    }

    /// Processor time of the io threads of ZeroMQ.
    private static long ioNanos() {
        var threads = ManagementFactory.getThreadMXBean();
        long sum = 0;
        for (var thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("iothread-")) {
                sum += Math.max(0, threads.getThreadCpuTime(thread.threadId()));
            }
        }
        return sum;
    }
}
