// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.sun.net.httpserver.HttpServer;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/// Requests of a client whose predecessor has ended.
class LastingHttpClientTest {
    private final AtomicInteger made = new AtomicInteger();
    private final HttpServer server = start();

    private static HttpServer start() {
        try {
            var server =
                    HttpServer.create(
                            new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
            server.createContext(
                    "/",
                    exchange -> {
                        exchange.sendResponseHeaders(204, -1);
                        exchange.close();
                    });
            server.start();
            return server;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private HttpClient make() {
        made.incrementAndGet();
        return HttpClient.newHttpClient();
    }

    private int ask(LastingHttpClient client) throws IOException, InterruptedException {
        var there = URI.create("http://127.0.0.1:" + server.getAddress().getPort());
        return HttpExchanges.send(
                        client.now(),
                        HttpRequest.newBuilder(there).build(),
                        BodyHandlers.discarding(),
                        Duration.ofSeconds(60))
                .statusCode();
    }

    @Test
    void theNextRequestHasANewClientWhenTheLastHasEnded() throws Exception {
        var client = new LastingHttpClient(this::make);
        try (client) {
            assertThat(ask(client)).isEqualTo(204);
            assertThat(ask(client)).isEqualTo(204);
            assertThat(made).hasValue(1);
            var ended = client.now();
            ended.shutdownNow(); // as its thread does when it has no memory
            assertThat(ended.awaitTermination(Duration.ofSeconds(60))).isTrue();
            assertThat(ask(client)).isEqualTo(204);
            assertThat(made).hasValue(2);
        }
        assertThatThrownBy(() -> ask(client)).isInstanceOf(IOException.class);
        assertThat(made).as("closed for good").hasValue(2);
    }
}
