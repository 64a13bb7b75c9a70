// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;

import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Clients that send slowly, read slowly or send malformed requests: none of them keeps a slot or a
/// connection that another client needs.
@Timeout(300)
class HostileClientsTest {
    private static final Duration SHORT = Duration.ofMillis(400);
    private static final byte[] CHUNK = "x".repeat(64 << 10).getBytes(StandardCharsets.UTF_8);

    private final List<Socket> sockets = new ArrayList<>();
    private final CompletableFuture<Boolean> endlessEnded = new CompletableFuture<>();
    private @Nullable HttpService http;

    private HttpService serve(int concurrent, int connections, Duration head, Duration stall) {
        var limits = new HttpLimits(connections, head, 1 << 20, stall, 1 << 20);
        var service =
                new HttpService(
                        "test",
                        new HttpService.Settings(
                                new InetSocketAddress(InetAddress.getLoopbackAddress(), 0),
                                10_000,
                                concurrent,
                                Duration.ofMillis(100),
                                limits,
                                "",
                                Optional.empty()));
        http = service;
        service.route(
                "POST",
                "/echo",
                call -> call.respond(200, "application/octet-stream", call.body()));
        service.route("POST", "/endless", this::endless);
        service.start();
        return service;
    }

    private void endless(HttpCall call) throws IOException {
        try (var out = call.stream(200, "text/plain")) {
            while (!call.isCancelled()) {
                out.write(CHUNK);
                out.flush();
            }
        } finally {
            endlessEnded.complete(true);
        }
    }

    @AfterEach
    void stop() throws IOException {
        for (var socket : sockets) {
            socket.close();
        }
        if (http != null) {
            http.close();
        }
    }

    private Socket open(String text) throws IOException {
        var socket =
                new Socket(InetAddress.getLoopbackAddress(), Objects.requireNonNull(http).port());
        sockets.add(socket);
        socket.setSoTimeout(20_000);
        socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
        socket.getOutputStream().flush();
        return socket;
    }

    /// Everything that the server sends until it closes the connection.
    private static String rest(Socket socket) throws IOException {
        try {
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } catch (SocketException e) {
            return "reset";
        }
    }

    /// Errors of Netty in the log of a server that is stopped look as if something were wrong.
    @Test
    void closingLogsNoErrorWhenAHandlerEndsLate() throws Exception {
        var service = serve(4, 8, Duration.ofSeconds(20), Duration.ofSeconds(20));
        var begun = new CompletableFuture<Thread>();
        service.route(
                "POST",
                "/late",
                call -> {
                    begun.complete(Thread.currentThread());
                    try {
                        TimeUnit.MINUTES.sleep(1);
                    } catch (InterruptedException e) {
                        // Work before the answer.
                        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(300));
                    }
                    call.respond(200, "text/plain", CHUNK);
                });
        var errors = new ListAppender<ILoggingEvent>();
        var logger = (Logger) LoggerFactory.getLogger("io.netty");
        errors.start();
        logger.addAppender(errors);
        try {
            open("POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
            var handler = begun.get(20, TimeUnit.SECONDS);
            service.close();
            assertThat(handler.join(Duration.ofSeconds(20))).isTrue();
        } finally {
            logger.detachAppender(errors);
        }
        assertThat(errors.list).filteredOn(event -> event.getLevel() == Level.ERROR).isEmpty();
    }

    /// A client that is slow only where the machine is gets an answer. One that was slower than the
    /// shortest limit tries again.
    private void assertServes() throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (true) {
            long begin = System.nanoTime();
            try {
                var response =
                        TestClient.postAlone(Objects.requireNonNull(http).port(), "/echo", "hello");
                if (response.statusCode() != 408 || !wasSlow(begin, limit)) {
                    assertThat(response.statusCode()).isEqualTo(200);
                    assertThat(response.body()).isEqualTo("hello");
                    return;
                }
            } catch (IOException e) {
                if (!wasSlow(begin, limit)) {
                    throw e;
                }
            }
        }
    }

    /// A call has its slot until a moment after its client has the answer.
    private void awaitFreeSlots() {
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (Objects.requireNonNull(http).runningCalls() > 0 && !limit.passed()) {
            LockSupport.parkNanos(1_000_000);
        }
    }

    private static boolean wasSlow(long begin, Deadline limit) {
        return System.nanoTime() - begin >= SHORT.toNanos() && !limit.passed();
    }

    @Test
    void slowBodiesTakeNoSlotAndEndWith408() throws Exception {
        serve(1, 100, Duration.ofSeconds(20), SHORT);
        var slow = new ArrayList<Socket>();
        for (int i = 0; i < 20; i++) {
            slow.add(open("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab"));
        }
        assertServes();
        for (var socket : slow) {
            assertThat(rest(socket)).contains("408").contains("too_slow");
        }
    }

    @Test
    void aClientThatStillSendsItsBodyGetsTheRefusal() throws Exception {
        serve(1, 100, Duration.ofSeconds(20), Duration.ofSeconds(20));
        int bytes = 16 * CHUNK.length;
        var socket =
                open("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + bytes + "\r\n\r\n");
        int first = socket.getInputStream().read(); // the answer is there before the body is sent
        for (int sent = 0; sent < bytes; sent += CHUNK.length) {
            socket.getOutputStream().write(CHUNK);
        }
        assertThat((char) first + rest(socket)).startsWith("HTTP/1.1 413").contains("close");
    }

    @Test
    void connectionsWithSlowHeadsAreClosed() throws Exception {
        serve(1, 100, SHORT, Duration.ofSeconds(20));
        var half = open("POST /echo HTTP/1.1\r\nHost: x\r\nX-Slow:");
        var silent = open("");
        assertServes();
        assertThat(rest(half)).isEmpty();
        assertThat(rest(silent)).isEmpty();
    }

    @Test
    void aClientThatStopsReadingLosesItsSlot() throws Exception {
        serve(1, 100, Duration.ofSeconds(20), SHORT);
        open("POST /endless HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assertThat(endlessEnded.get(20, TimeUnit.SECONDS)).isTrue();
        awaitFreeSlots();
        assertServes();
    }

    @Test
    void aClientThatReadsNoResponseIsDisconnected() throws Exception {
        serve(1, 100, Duration.ofSeconds(20), SHORT);
        var body = "y".repeat(9_000);
        var request = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + body;
        var socket = open(request);
        var writer =
                CompletableFuture.runAsync(() -> {
                    try {
                        // Pipelines requests without reading responses, until the server stops
                        // reading and closes the connection.
                        for (int i = 0; i < 10_000; i++) {
                            socket.getOutputStream()
                                    .write(request.getBytes(StandardCharsets.UTF_8));
                        }
                    } catch (IOException e) {
                        endlessEnded.complete(true);
                    }
                });
        assertThat(endlessEnded.get(30, TimeUnit.SECONDS)).isTrue();
        writer.get(40, TimeUnit.SECONDS);
        awaitFreeSlots();
        assertServes();
    }

    @Test
    void idleConnectionsAreClosedForNewOnes() throws Exception {
        var service = serve(4, 5, Duration.ofSeconds(60), Duration.ofSeconds(20));
        for (int i = 0; i < 20; i++) {
            open(i % 2 == 0 ? "" : "POST /echo HT");
        }
        assertServes();
        assertThat(service.connections().count()).isLessThanOrEqualTo(5);
    }

    @Test
    void boundsTheMemoryOfAllBodies() throws Exception {
        serve(1, 500, Duration.ofSeconds(20), Duration.ofSeconds(20));
        var limit = Deadline.in(Duration.ofSeconds(20));
        boolean refused = false;
        while (!refused && !limit.passed()) {
            open(
                    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"
                            + "z".repeat(9_000));
            var answer =
                    rest(
                            open(
                                    "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9900\r\n\r\n"
                                            + "z".repeat(9_900)));
            refused = !answer.startsWith("HTTP/1.1 200");
        }
        assertThat(refused).isTrue();
        for (var socket : sockets) {
            socket.close();
        }
        while (!limit.passed()) {
            if (TestClient.post(Objects.requireNonNull(http).port(), "/echo", "q").statusCode()
                    == 200) {
                break;
            }
        }
        awaitFreeSlots();
        assertServes();
    }

    @Test
    void speaksHttpAsClientsDo() throws Exception {
        serve(4, 100, Duration.ofSeconds(20), Duration.ofSeconds(20));
        var twice = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab";
        var last =
                "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\n\r\n";
        var answers = rest(open(twice + twice + last));
        assertThat(answers.split("HTTP/1.1 200 OK", -1)).hasSize(4);
        assertThat(answers).endsWith("cd");
        assertThat(rest(open("POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nq"))).endsWith("q");
        var expects =
                open(
                        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 1\r\n\r\n");
        var head = new byte[25];
        assertThat(expects.getInputStream().readNBytes(head, 0, 25)).isEqualTo(25);
        assertThat(new String(head, StandardCharsets.UTF_8)).startsWith("HTTP/1.1 100 Continue");
        expects.getOutputStream().write('e');
        assertThat(rest(expects)).endsWith("e");
        assertThat(rest(open("POST /echo HTTP/1.1\r\nX: " + "h".repeat(70_000) + "\r\n\r\n")))
                .contains("431");
        assertThat(rest(open("GET /" + "u".repeat(9_000) + " HTTP/1.1\r\n\r\n"))).contains("414");
        assertThat(rest(open("nonsense\r\n\r\n"))).contains("400");
        assertThat(rest(open("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")))
                .contains("413");
    }

    @Test
    void survivesMutatedRequests() throws Exception {
        mutate(2_000);
    }

    @Test
    @Tag("soak")
    @Timeout(value = 30, unit = TimeUnit.MINUTES)
    void survivesTwoHundredThousandMutatedRequests() throws Exception {
        mutate(200_000);
    }

    private void mutate(int count) throws Exception {
        var service = serve(4, 200, Duration.ofSeconds(2), SHORT);
        var random = new Random(7);
        var good =
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\nTransfer-Encoding: identity\r\n\r\n{\"a\": 1}\n";
        for (int i = 0; i < count; i++) {
            var bytes = good.getBytes(StandardCharsets.ISO_8859_1);
            for (int j = random.nextInt(6); j >= 0; j--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(256);
            }
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), service.port())) {
                socket.setSoTimeout(20);
                socket.getOutputStream().write(bytes, 0, 1 + random.nextInt(bytes.length));
                if (i % 50 == 0) {
                    int first = socket.getInputStream().read();
                    assertThat(first).as("request %s", i).isIn(-1, (int) 'H');
                }
            } catch (SocketTimeoutException | SocketException e) {
                // The request is incomplete, or the server closed the connection: both are right.
                continue;
            }
            if (i % 500 == 0) {
                awaitFreeSlots();
                assertServes();
            }
        }
        awaitFreeSlots();
        assertServes();
        var limit = Deadline.in(Duration.ofSeconds(20));
        while ((service.connections().count() > 2 || service.runningCalls() > 0)
                && !limit.passed()) {
            Thread.onSpinWait();
        }
        assertThat(service.connections().count()).isLessThanOrEqualTo(2);
        assertThat(service.runningCalls()).isZero();
    }
}
