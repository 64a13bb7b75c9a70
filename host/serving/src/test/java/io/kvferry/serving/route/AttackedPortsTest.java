// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/// Mutated requests, half-open and slow connections against every port of an engine and of a
/// router, while a legitimate client asks the router: each of its requests is answered, and in the
/// end nothing is left of the attack.
class AttackedPortsTest {
    private static final String BODY =
            "{\"prompt\": \"It was the best of times\", \"max_tokens\": 4, \"temperature\": 0.5, \"n\": 1, \"stop\": [\"x\"], \"stream\": true}";
    private static final String CHAT =
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 2, \"logprobs\": true, \"top_logprobs\": 2, \"logit_bias\": {\"5\": -1}}";
    private static final int ATTACKERS = 2;

    /// A port that serves no prompts gets this part of the connections, one that does not speak
    /// HTTP of the requests, too.
    private static final int SHARE = 10;

    private final AtomicBoolean over = new AtomicBoolean();
    private final AtomicInteger served = new AtomicInteger();
    private final List<String> refused = new ArrayList<>();

    /// The first unexpected end of an attacker.
    private final AtomicReference<@Nullable Throwable> wrong = new AtomicReference<>();

    /// How much each port gets.
    private record Attack(int mutated, int halfOpen, int slow, Duration pace) {}

    /// @param http whether it speaks HTTP
    /// @param prompts whether it serves prompts
    /// @param requests request line and body of what it serves
    private record Target(
            String name, int port, boolean http, boolean prompts, List<List<String>> requests) {}

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void serveWhileAttacked() throws Exception {
        attack(new Attack(100, 50, 25, Duration.ofMillis(100)));
    }

    @Test
    @Tag("soak")
    @Timeout(value = 60, unit = TimeUnit.MINUTES)
    void serveWhileAttackedForLong() throws Exception {
        int requests = Integer.getInteger("kvferry.soak.requests", 200_000);
        attack(new Attack(requests, 2_000, 500, Duration.ofSeconds(1)));
    }

    private void attack(Attack attack) throws Exception {
        var loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        try (var engine = ServedEngine.withAdminPort(TestSettings.synthetic().get());
                var router =
                        new PdRouter(
                                RouterSettings.of(
                                        HandOff.CONTENT,
                                        List.of(TestClient.uri(engine.port(), "")),
                                        List.of(TestClient.uri(engine.port(), "")),
                                        List.of()),
                                TestClient.loopback(),
                                Optional.of(loopback),
                                Optional.of(loopback))) {
            router.start();
            var targets = targets(engine, router);
            var client = Thread.ofVirtual().start(() -> ask(router.port(), attack.pace));
            var crawlers = new ArrayList<Thread>();
            var mutators = new ArrayList<Thread>();
            for (var target : targets) {
                crawlers.add(Thread.ofVirtual().start(() -> crawl(target, attack)));
                for (int i = 0; i < ATTACKERS; i++) {
                    int seed = i;
                    int count = attack.mutated / ATTACKERS / (target.http ? 1 : SHARE);
                    mutators.add(
                            Thread.ofPlatform()
                                    .start(() -> attempt(() -> mutate(target, count, seed))));
                }
            }
            for (var thread : mutators) {
                thread.join();
            }
            var limit = Deadline.in(Duration.ofMinutes(2));
            while (served.get() < 3 && !limit.passed()) {
                pause(Duration.ofMillis(20)); // the connections are still there
            }
            over.set(true);
            client.join();
            for (var thread : crawlers) {
                thread.join();
            }
            assertThat(wrong.get()).isNull();
            assertThat(refused).isEmpty();
            assertThat(served).hasValueGreaterThan(2);
            System.out.println(
                    "answered while attacked: "
                            + served
                            + ", mutated requests to each HTTP port: "
                            + attack.mutated);
            awaitRest(engine);
        }
    }

    private static List<Target> targets(ServedEngine engine, PdRouter router) {
        var prompts =
                List.of(
                        List.of("POST /v1/completions", BODY),
                        List.of("POST /v1/chat/completions", CHAT),
                        List.of("POST /tokenize", "{\"prompt\": \"a\"}"),
                        List.of("GET /v1/models", ""));
        var admin =
                List.of(
                        List.of("GET /metrics", ""),
                        List.of("GET /health", ""),
                        List.of("POST /reset_prefix_cache?reset_external=true", ""),
                        List.of("POST /v1/completions", BODY));
        int registration = URI.create(router.registrationAddress().orElseThrow()).getPort();
        return List.of(
                new Target("engine", engine.port(), true, true, prompts),
                new Target("engine's admin port", engine.adminPort(), true, false, admin),
                new Target("router", router.port(), true, true, prompts),
                new Target("router's admin port", router.adminPort(), true, false, admin),
                new Target("router's registration port", registration, false, false, admin));
    }

    private interface Step {
        void run() throws Exception;
    }

    private void attempt(Step step) {
        try {
            step.run();
        } catch (Exception | AssertionError e) {
            wrong.compareAndSet(null, e);
        }
    }

    /// Keeps half-open connections and slow bodies open; those that the port closes are opened
    /// again.
    private void crawl(Target target, Attack attack) {
        int share = target.prompts ? 1 : SHARE;
        var sockets = new ArrayList<Socket>();
        try {
            while (!over.get()) {
                for (int i = 0; i < (attack.halfOpen + attack.slow) / share && !over.get(); i++) {
                    boolean slow = i < attack.slow / share;
                    if (i >= sockets.size()) {
                        sockets.add(new Socket());
                    }
                    sockets.set(i, crept(sockets.get(i), target, slow));
                }
                pause(attack.pace);
            }
        } finally {
            for (var socket : sockets) {
                close(socket);
            }
        }
    }

    /// One byte further, or a new connection.
    private static Socket crept(Socket socket, Target target, boolean slow) {
        try {
            if (socket.isConnected()) {
                if (slow) {
                    socket.getOutputStream().write(' ');
                }
                return socket;
            }
            socket.connect(
                    new InetSocketAddress(InetAddress.getLoopbackAddress(), target.port), 10_000);
            var head = "POST /v1/completions HTTP/1.1\r\nHost: ";
            var text = slow ? head + "x\r\nContent-Length: 4000\r\n\r\n{" : head;
            socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
            return socket;
        } catch (IOException e) {
            close(socket); // the server has had enough of it: right
            return new Socket();
        }
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
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
                        TestClient.postAlone(
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

    /// Half of them mutate the HTTP, half of them the JSON of a request that is whole.
    private static void mutate(Target target, int count, int seed) throws IOException {
        var random = new Random(seed);
        for (int i = 0; i < count; i++) {
            var request = target.requests.get(random.nextInt(target.requests.size()));
            var body = request.getLast().getBytes(StandardCharsets.ISO_8859_1);
            boolean http = body.length == 0 || random.nextBoolean();
            if (!http) {
                spoil(body, random);
            }
            var head =
                    (request.getFirst()
                                    + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
                                    + body.length
                                    + "\r\n\r\n")
                            .getBytes(StandardCharsets.ISO_8859_1);
            if (http) {
                spoil(head, random);
            }
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), target.port)) {
                socket.setSoTimeout(20);
                socket.getOutputStream().write(head);
                socket.getOutputStream().write(body);
                int first = socket.getInputStream().read();
                // HTTP, or the greeting of ZMTP.
                assertThat(first).as("answer of the %s", target.name).isIn(-1, (int) 'H', 0xFF);
            } catch (SocketTimeoutException | SocketException e) {
                continue; // an incomplete request, or one that was cut: both are right
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
