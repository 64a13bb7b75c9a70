// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

class HttpPortTest {
    /// As after an Error of the JDK server's one thread: nobody serves the port any more.
    @Test
    void aServerThatDoesNotAnswerIsStartedAgainOnItsPort() throws Exception {
        try (var port =
                HttpPort.start(
                        "deaf",
                        new InetSocketAddress(InetAddress.getLoopbackAddress(), 0),
                        Duration.ofSeconds(5),
                        16,
                        exchange -> {
                            exchange.sendResponseHeaders(200, -1);
                            exchange.close();
                        },
                        Duration.ofMillis(100))) {
            awaitServed(port);
            var inner = HttpPort.class.getDeclaredField("server");
            inner.setAccessible(true);
            ((HttpServer) inner.get(port)).stop(0);
            awaitServed(port);
        }
    }

    /// On a busy machine the port may be taken for deaf, and started again, at any time.
    private static void awaitServed(HttpPort port) throws Exception {
        int status = 0;
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (status != 200 && !limit.passed()) {
            try {
                status = status(port);
            } catch (IOException e) {
                status = -1; // not yet
            }
        }
        assertThat(status).isEqualTo(200);
    }

    private static int status(HttpPort port) throws Exception {
        var uri = URI.create("http://127.0.0.1:" + port.address().getPort() + "/x");
        var request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(5)).build();
        try (var client = HttpClient.newHttpClient()) {
            return client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        }
    }
}
