// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

@Timeout(300)
class HttpExchangesTest {
    private final AtomicInteger accepted = new AtomicInteger();

    /// Of each connection that was accepted, whether the client has closed it.
    private final BlockingQueue<Boolean> cut = new LinkedBlockingQueue<>();

    @Test
    void endWhenTheBodyStalls() throws Exception {
        try (var server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                var client = HttpClient.newHttpClient()) {
            Thread.ofVirtual().start(() -> answerHalves(server));
            var request =
                    HttpRequest.newBuilder(
                                    URI.create("http://127.0.0.1:" + server.getLocalPort() + "/"))
                            .build();
            var stalls = new AtomicBoolean();
            BodyHandler<String> body =
                    _ -> {
                        stalls.set(true);
                        return BodySubscribers.ofString(StandardCharsets.UTF_8);
                    };
            // With more time where a busy machine needed all of it for the headers.
            var limit = Duration.ofMillis(500);
            while (!stalls.get()) {
                var given = limit;
                assertThatThrownBy(() -> HttpExchanges.send(client, request, body, given))
                        .isInstanceOf(HttpTimeoutException.class);
                limit = limit.multipliedBy(2);
            }
            for (int i = 0; i < accepted.get(); i++) {
                assertThat(cut.poll(30, TimeUnit.SECONDS)).as("the connection is closed").isTrue();
            }
        }
    }

    @Test
    void aCancellationEndsOneThatIsNotAnswered() throws Exception {
        var cancellation = new Cancellation();
        try (var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var client = HttpClient.newHttpClient()) {
            var request =
                    HttpRequest.newBuilder(
                                    URI.create("http://127.0.0.1:" + server.getLocalPort() + "/"))
                            .build();
            var ended =
                    CompletableFuture.supplyAsync(() ->
                            catchThrowable(() ->
                                    HttpExchanges.send(
                                            client,
                                            request,
                                            BodyHandlers.ofString(),
                                            Duration.ofMinutes(10),
                                            cancellation)));
            try (var silent = server.accept()) {
                assertThat(silent.getInputStream().read()).isNotNegative();
                cancellation.cancel(ErrorCode.CLOSED);
                assertThat(ended.get(60, TimeUnit.SECONDS))
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
            }
        }
    }

    /// Refused a single thread, a client of the JDK answers nothing any more.
    @Test
    void aClientGoesOnWhileThreadsAreRefused() throws Exception {
        var refusals = new AtomicInteger();
        var threads =
                HttpExchanges.threads(task -> {
                    if (refusals.incrementAndGet() % 2 == 0) {
                        throw new RejectedExecutionException("refused by the test");
                    }
                    throw new OutOfMemoryError("no thread, says the test");
                });
        var server =
                HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext(
                "/",
                exchange -> {
                    exchange.sendResponseHeaders(200, 2);
                    exchange.getResponseBody().write("ok".getBytes(StandardCharsets.US_ASCII));
                    exchange.close();
                });
        server.start();
        try (var client = HttpClient.newBuilder().executor(threads).build()) {
            var uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
            for (int i = 0; i < 5; i++) {
                var answer =
                        HttpExchanges.send(
                                client,
                                HttpRequest.newBuilder(uri).build(),
                                BodyHandlers.ofString(),
                                Duration.ofSeconds(60));
                assertThat(answer.body()).isEqualTo("ok");
            }
            assertThat(refusals).hasPositiveValue();
        } finally {
            server.stop(0);
        }
    }

    private void answerHalves(ServerSocket server) {
        try {
            while (true) {
                var socket = server.accept();
                accepted.incrementAndGet();
                Thread.ofVirtual().start(() -> cut.add(answerHalf(socket)));
            }
        } catch (IOException _) {
            // Closed by the test.
        }
    }

    /// Sends a part of a body, and waits until the client has closed the connection.
    private static boolean answerHalf(Socket socket) {
        try (socket) {
            var in = socket.getInputStream();
            socket.getOutputStream()
                    .write(
                            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
                                    .getBytes(StandardCharsets.US_ASCII));
            int read = in.read();
            while (read >= 0) {
                read = in.read();
            }
            return true;
        } catch (SocketException e) {
            return true; // a reset closes it too
        } catch (IOException e) {
            return false;
        }
    }
}
