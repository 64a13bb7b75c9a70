// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// A router whose connection to an engine breaks before the first byte of the response: the request
/// goes out again, and the engine never runs it twice.
@Timeout(300)
class SentAgainTest {
    private static final String REQUEST =
            "{\"prompt\": \"a\", \"max_tokens\": 3, \"ignore_eos\": true}";

    private final List<Socket> sockets = new ArrayList<>();
    private final AtomicInteger connections = new AtomicInteger();
    private final ServedEngine engine = new ServedEngine(TestSettings.synthetic().get());
    private final ServedEngine prefill = new ServedEngine(TestSettings.synthetic().get());
    private final ServerSocket listener;
    private volatile Link first = Link.FORWARDS;

    /// Faults of a connection that carries completions.
    private enum Link {
        FORWARDS,
        /// Is cut when the request has been read and nothing of it was passed on.
        LOSES_THE_REQUEST,
        /// Is cut when the engine has ended the request.
        LOSES_THE_RESPONSE,
        /// Is cut in the middle of the status line.
        CUTS_THE_RESPONSE
    }

    SentAgainTest() throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread.ofVirtual().start(this::accept);
    }

    @AfterEach
    void stop() throws IOException {
        listener.close();
        for (var socket : sockets) {
            socket.close();
        }
        engine.close();
        prefill.close();
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                var client = listener.accept();
                sockets.add(client);
                Thread.ofVirtual().start(() -> serve(client));
            } catch (IOException e) {
                return; // closed
            }
        }
    }

    /// One request of each connection: the router is told to use it once.
    private void serve(Socket client) {
        try (client;
                var server = new Socket(InetAddress.getLoopbackAddress(), engine.port())) {
            var request = request(client);
            boolean completion = request.startsWith("POST /v1/completions");
            var link = completion && connections.incrementAndGet() == 1 ? first : Link.FORWARDS;
            if (link == Link.LOSES_THE_REQUEST) {
                return;
            }
            server.getOutputStream().write(request.getBytes(StandardCharsets.ISO_8859_1));
            if (link == Link.LOSES_THE_RESPONSE) {
                awaitFinished(1);
                return;
            }
            if (link == Link.CUTS_THE_RESPONSE) {
                client.getOutputStream().write("HTTP/1.1 2".getBytes(StandardCharsets.US_ASCII));
                return;
            }
            server.getInputStream().transferTo(client.getOutputStream());
        } catch (Exception e) {
            // a connection that was cut: the router says what became of its request
        }
    }

    /// Head and body, with the wish that the connection ends after the response.
    private static String request(Socket client) throws IOException {
        var text = new StringBuilder();
        while (text.indexOf("\r\n\r\n") < 0) {
            text.append((char) client.getInputStream().read());
        }
        int length = 0;
        for (var line : text.toString().split("\r\n")) {
            if (line.toLowerCase(Locale.ROOT).startsWith("content-length:")) {
                length = Integer.parseInt(line.substring(15).strip());
            }
        }
        var body = new String(client.getInputStream().readNBytes(length), StandardCharsets.UTF_8);
        return text.insert(text.indexOf("\r\n") + 2, "Connection: close\r\n") + body;
    }

    private double finished() throws Exception {
        return engine.metric("kvferry_requests_finished_total", "");
    }

    private void awaitFinished(int count) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (finished() < count && !limit.passed()) {
            TimeUnit.MILLISECONDS.sleep(5); // the figure is all there is; the deadline decides
        }
    }

    private HttpResponse<String> ask() throws Exception {
        var settings =
                RouterSettings.of(
                        HandOff.CONTENT,
                        List.of(TestClient.uri(prefill.port(), "")),
                        List.of(TestClient.uri(listener.getLocalPort(), "")),
                        List.of());
        try (var router = new PdRouter(settings, TestClient.loopback())) {
            router.start();
            return TestClient.post(router.port(), "/v1/completions", REQUEST);
        }
    }

    @Test
    void sendsAgainWhatTheEngineDidNotReceive() throws Exception {
        first = Link.LOSES_THE_REQUEST;
        assertThat(ask().statusCode()).isEqualTo(200);
        assertThat(connections).hasValue(2);
        assertThat(finished()).isEqualTo(1);
    }

    @Test
    void theEngineRunsNothingTwice() throws Exception {
        first = Link.LOSES_THE_RESPONSE;
        var response = ask();
        assertThat(connections).hasValue(2);
        assertThat(response.statusCode()).as(response.body()).isEqualTo(502);
        assertThat(response.body()).contains("decode_failed").doesNotContain("duplicate");
        assertThat(finished()).isEqualTo(1);
    }

    @Test
    void sendsNothingAgainWhenAResponseHadBegun() throws Exception {
        first = Link.CUTS_THE_RESPONSE;
        assertThat(ask().statusCode()).isEqualTo(502);
        assertThat(connections).hasValue(1);
    }

    @Test
    void refusesALegThatItHasReceived() throws Exception {
        var header = new String[] {"X-Kvferry-Leg", "one"};
        var path = "/v1/completions";
        assertThat(TestClient.post(engine.port(), path, REQUEST, header).statusCode())
                .isEqualTo(200);
        var again = TestClient.post(engine.port(), path, REQUEST, header);
        assertThat(again.statusCode()).isEqualTo(409);
        assertThat(again.body()).contains("duplicate");
        assertThat(TestClient.post(engine.port(), path, REQUEST).statusCode()).isEqualTo(200);
        assertThat(
                        TestClient.post(
                                        engine.port(),
                                        path,
                                        REQUEST,
                                        "X-Kvferry-Leg",
                                        "x".repeat(100))
                                .statusCode())
                .isEqualTo(400);
    }
}
