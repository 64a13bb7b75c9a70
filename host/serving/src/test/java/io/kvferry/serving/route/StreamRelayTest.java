// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Streams through the router: piece by piece, and cut at either end.
class StreamRelayTest extends RouterRig {
    @Test
    void relaysAStreamPieceByPiece() throws Exception {
        var gate = new CompletableFuture<Void>();
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    try (var out = call.stream(200, "text/event-stream")) {
                        out.write("data: 1\n\n".getBytes(StandardCharsets.UTF_8));
                        out.flush();
                        gate.join();
                        out.write("data: [DONE]\n\n".getBytes(StandardCharsets.UTF_8));
                    }
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        try (var socket = TestClient.open(router.port(), "/v1/completions", STREAM_REQUEST)) {
            var text = new StringBuilder();
            while (text.indexOf("data: 1\n\n") < 0) {
                text.append((char) socket.getInputStream().read());
            }
            assertThat(text).doesNotContain("DONE");
            gate.complete(null);
            while (text.indexOf("data: [DONE]\n\n") < 0) {
                text.append((char) socket.getInputStream().read());
            }
        }
        assertThat(p.seen.remove().body().has("stream_options")).isFalse();
    }

    @Test
    void replacesADecodeThatDiesBeforeItsFirstByte() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var dying =
                stub(call -> {
                    call.stream(200, "text/event-stream").flush();
                    throw new IOException("killed");
                });
        var d = stub(StubInstance.stream("data: ok\n\n", "data: [DONE]\n\n"));
        var response =
                ask(
                        router(HandOff.PARAMS, List.of(p.uri()), List.of(dying.uri(), d.uri())),
                        STREAM_REQUEST);
        assertThat(TestClient.events(response.body())).containsExactly("ok", "[DONE]");
    }

    @Test
    void endsAStreamWhoseDecodeFailsWithAnErrorEvent() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var dying =
                stub(call -> {
                    var out = call.stream(200, "text/event-stream");
                    out.write("data: one\n\ndata: tw".getBytes(StandardCharsets.UTF_8));
                    out.flush();
                    throw new IOException("killed");
                });
        var response =
                ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(dying.uri())), STREAM_REQUEST);
        var events = TestClient.events(response.body());
        assertThat(events.getFirst()).isEqualTo("one");
        assertThat(TestClient.json(events.get(2)).at("/error/code").asString())
                .isEqualTo("decode_failed");
        assertThat(events.getLast()).isEqualTo("[DONE]");
    }

    @Test
    void givesUpOnASilentStream() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var silent =
                stub(call -> {
                    var out = call.stream(200, "text/event-stream");
                    out.write("data: one\n\n".getBytes(StandardCharsets.UTF_8));
                    out.flush();
                    new CompletableFuture<Void>()
                            .completeOnTimeout(null, 10, TimeUnit.SECONDS)
                            .join();
                });
        var router =
                router(
                        HandOff.PARAMS,
                        List.of(p.uri()),
                        List.of(silent.uri()),
                        true,
                        Duration.ofMillis(300));
        var response = ask(router, STREAM_REQUEST);
        assertThat(response.body()).contains("silent for").contains("[DONE]");
    }

    @Test
    void endsStreamsWithAnErrorEventWhenItStops() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    var ended = new CompletableFuture<Void>();
                    call.onCancel(() -> ended.complete(null));
                    try (var out = call.stream(200, "text/event-stream")) {
                        out.write("data: 1\n\n".getBytes(StandardCharsets.UTF_8));
                        out.flush();
                        ended.join();
                    }
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        try (var socket = TestClient.open(router.port(), "/v1/completions", STREAM_REQUEST)) {
            var in = socket.getInputStream();
            var text = new StringBuilder();
            while (text.indexOf("data: 1\n\n") < 0) {
                text.append((char) in.read());
            }
            router.close();
            assertThat(new String(in.readAllBytes(), StandardCharsets.UTF_8))
                    .contains("\"stopping\"", "data: [DONE]");
        }
    }

    @Test
    void cancelsTheLegWhenTheClientDisconnects() throws Exception {
        var gone = new CompletableFuture<Void>();
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    call.onCancel(() -> gone.complete(null));
                    gone.join();
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        var socket = TestClient.open(router.port(), "/v1/completions", REQUEST);
        d.seen.take();
        socket.close();
        gone.get(40, TimeUnit.SECONDS);
    }
}
