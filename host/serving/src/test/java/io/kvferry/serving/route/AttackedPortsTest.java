// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// Mutated requests, half-open and slow connections against the port of an engine and of a router,
/// while a legitimate client asks the router: each of its requests is answered, and in the end
/// nothing is left of the attack.
class AttackedPortsTest {
    private static final String BODY =
            "{\"prompt\": \"It was the best of times\", \"max_tokens\": 4, \"temperature\": 0.5, \"n\": 1, \"stop\": [\"x\"], \"stream\": true}";
    private static final int ATTACKERS = 4;

    private final List<Socket> sockets = new ArrayList<>();
    private final AtomicBoolean over = new AtomicBoolean();
    private final AtomicInteger served = new AtomicInteger();
    private final List<String> refused = new ArrayList<>();

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void serveWhileAttacked() throws Exception {
        attack(200, 100, 50, Duration.ofMillis(100));
    }

    @Test
    @Tag("soak")
    @Timeout(value = 60, unit = TimeUnit.MINUTES)
    void serveWhileAttackedForLong() throws Exception {
        attack(
                Integer.getInteger("kvferry.soak.requests", 200_000),
                2_000,
                500,
                Duration.ofSeconds(1));
    }

    private void attack(int mutated, int halfOpen, int slow, Duration pace) throws Exception {
        try (var engine = new ServedEngine(TestSettings.synthetic().get());
                var router =
                        new PdRouter(
                                RouterSettings.of(
                                        HandOff.CONTENT,
                                        List.of(TestClient.uri(engine.port(), "")),
                                        List.of(TestClient.uri(engine.port(), "")),
                                        List.of()),
                                TestClient.loopback())) {
            router.start();
            int[] ports = {router.port(), engine.port()};
            var client = Thread.ofVirtual().start(() -> ask(router.port(), pace));
            for (int i = 0; i < halfOpen; i++) {
                open(ports[i % 2], "POST /v1/completions HTTP/1.1\r\nHost: ");
            }
            for (int i = 0; i < slow; i++) {
                open(
                        ports[i % 2],
                        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{");
            }
            var trickle = Thread.ofVirtual().start(() -> trickle(halfOpen));
            for (int port : ports) {
                mutate(port, mutated);
            }
            over.set(true);
            client.join();
            trickle.join();
            for (var socket : sockets) {
                socket.close();
            }
            assertThat(refused).isEmpty();
            assertThat(served).hasValueGreaterThan(2);
            System.out.println(
                    "answered while attacked: "
                            + served
                            + ", mutated requests on each port: "
                            + mutated);
            awaitRest(engine);
        }
    }

    private void open(int port, String text) throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), port);
        sockets.add(socket);
        socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    /// One byte of each slow body at a time.
    private void trickle(int from) {
        while (!over.get()) {
            for (var socket : sockets.subList(from, sockets.size())) {
                try {
                    socket.getOutputStream().write(' ');
                } catch (IOException e) {
                    continue; // the server has had enough of it: right
                }
            }
            pause(Duration.ofMillis(200));
        }
    }

    private static void pause(Duration time) {
        try {
            Thread.sleep(time);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void ask(int port, Duration pace) {
        while (!over.get()) {
            try {
                var answer =
                        TestClient.post(
                                port, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 2}");
                if (answer.statusCode() == 200) {
                    served.incrementAndGet();
                } else {
                    refused.add(answer.statusCode() + " " + answer.body());
                }
            } catch (Exception e) {
                refused.add(e.toString());
            }
            pause(pace);
        }
    }

    private void mutate(int port, int count) throws Exception {
        var threads = new ArrayList<Thread>();
        for (int i = 0; i < ATTACKERS; i++) {
            int seed = i;
            threads.add(Thread.ofVirtual().start(() -> mutate(port, count / ATTACKERS, seed)));
        }
        for (var thread : threads) {
            thread.join();
        }
    }

    /// Half of them mutate the HTTP, half of them the JSON of a request that is whole.
    private void mutate(int port, int count, int seed) {
        var random = new Random(seed);
        for (int i = 0; i < count; i++) {
            boolean http = random.nextBoolean();
            var body = BODY.getBytes(StandardCharsets.ISO_8859_1);
            if (!http) {
                spoil(body, random);
            }
            var head =
                    ("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
                                    + body.length
                                    + "\r\n\r\n")
                            .getBytes(StandardCharsets.ISO_8859_1);
            if (http) {
                spoil(head, random);
            }
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                socket.setSoTimeout(20);
                socket.getOutputStream().write(head);
                socket.getOutputStream().write(body);
                int first = socket.getInputStream().read();
                if (first != -1 && first != 'H') {
                    throw new AssertionError("answer begins with " + first);
                }
            } catch (SocketTimeoutException | SocketException e) {
                continue; // an incomplete request, or one that was cut: both are right
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        }
    }

    private static void spoil(byte[] bytes, Random random) {
        for (int j = random.nextInt(5); j >= 0; j--) {
            bytes[random.nextInt(bytes.length)] =
                    random.nextBoolean()
                            ? (byte) random.nextInt(256)
                            : (byte) "0123456789\"{}[]:,.-\\ ".charAt(random.nextInt(21));
        }
    }

    private static void awaitRest(ServedEngine engine) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(30));
        double free = -1;
        while (!limit.passed()) {
            free = engine.metric("kvferry_blocks", "kind=\"free\"");
            if (free == engine.metric("kvferry_blocks", "kind=\"total\"")
                    && engine.metric("vllm:num_requests_running", "") == 0
                    && engine.metric("kvferry_http_running", "") == 0
                    && engine.metric("kvferry_http_connections", "") <= 30) {
                return;
            }
            pause(Duration.ofMillis(50)); // the figures are all there is; the deadline decides
        }
        throw new AssertionError("not at rest: " + engine.metrics());
    }
}
