// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

/// Instances that register by heartbeat, through an independent ZeroMQ library.
class RegistrationsTest extends RouterRig {
    private static final String PING =
            "83a474797065a150ac687474705f61646472657373a6683a38303030ab7a6d715f61646472657373a7683a3231303031";

    @Test
    void readsWhatVllmSends() {
        var ping = Registrations.parse(HexFormat.of().parseHex(PING));
        assertThat(ping)
                .isEqualTo(
                        new Registrations.Ping(
                                Registrations.Kind.PREFILL,
                                URI.create("http://h:8000"),
                                URI.create("tcp://h:21001")));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "c0",
                "80",
                "81a474797065a150",
                "83a474797065a151ac687474705f61646472657373a6683a38303030ab7a6d715f61646472657373a7683a3231303031",
                "83a474797065a150ac687474705f61646472657373a6682f38303030ab7a6d715f61646472657373a7683a3231303031",
                "83a474797065a150ac687474705f6164647265737305ab7a6d715f61646472657373a7683a3231303031"
            })
    void refusesWhatIsNoRegistration(String hex) {
        assertThatThrownBy(() -> Registrations.parse(HexFormat.of().parseHex(hex)))
                .isInstanceOf(KvFerryException.class);
    }

    @Test
    @DisplayName("P19 routes to those who register until they are silent")
    void routesToThoseWhoRegisterUntilTheyAreSilent() throws Exception {
        var p = stub(call -> call.respondText(200, "application/json", "{\"choices\": []}"));
        var d = stub(call -> call.respondText(200, "application/json", D_ANSWER));
        var router = registering();
        assertThat(ask(router, REQUEST).statusCode()).as("nobody is there").isEqualTo(503);
        try (var instance = new Heartbeats(router.registrationAddress().orElseThrow())) {
            var garbage = "garbage".getBytes(StandardCharsets.UTF_8);
            var decode = ping("D", d.uri(), 22_001);
            instance.say(garbage, ping("P", p.uri(), 21_001), decode);
            await(() -> instances(router, "decode") == 1 && instances(router, "prefill") == 1);
            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
            assertThat(d.seen.take().params().path("prefill_addr").asString(""))
                    .isEqualTo("127.0.0.1:21001");
            instance.say(ping("P", p.uri(), 21_005), decode); // started anew
            // Whether the prefill leg arrives is open: it ends with an answer that comes before it.
            await(() -> {
                assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
                return d.seen.take()
                        .params()
                        .path("prefill_addr")
                        .asString("")
                        .equals("127.0.0.1:21005");
            });
            instance.say(); // silent for 5 s
            await(() -> instances(router, "decode") == 0 && instances(router, "prefill") == 0);
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(503);
        }
    }

    /// One that loads its model still gets no requests, and the first ones as soon as it is ready.
    @Test
    void anInstanceThatIsNotReadyYetGetsNothing() throws Exception {
        var p = stub(call -> call.respondText(200, "application/json", "{\"choices\": []}"));
        var d = stub(call -> call.respondText(200, "application/json", D_ANSWER));
        p.health = 503;
        d.health = 503;
        var router = registering();
        try (var instance = new Heartbeats(router.registrationAddress().orElseThrow())) {
            instance.say(ping("P", p.uri(), 21_001), ping("D", d.uri(), 22_001));
            await(() -> listed(router, p.uri()) == 1 && listed(router, d.uri()) == 1);
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(503);
            d.health = 200;
            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
            assertThat(d.seen.take().body().has("kv_transfer_params")).isFalse();
            assertThat(p.seen).isEmpty();
            p.health = 200;
            await(() -> instances(router, "prefill") == 1);
            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
            assertThat(d.seen.take().params().path("prefill_addr").asString(""))
                    .isEqualTo("127.0.0.1:21001");
        }
    }

    private PdRouter registering() {
        var router =
                new PdRouter(
                        RouterSettings.of(HandOff.P2P, List.of(), List.of(), List.of()),
                        TestClient.loopback(),
                        Optional.empty(),
                        Optional.of(new InetSocketAddress("127.0.0.1", 0)));
        open.add(router);
        router.start();
        return router;
    }

    /// New requests go to the other one while it ends what it has; then it says goodbye.
    @Test
    void anInstanceThatDrainsEndsWhatItHasAndGetsNothingNew() throws Exception {
        var p = stub(call -> call.respondText(200, "application/json", "{\"choices\": []}"));
        var finish = new CountDownLatch(1);
        var draining = new AtomicBoolean();
        var d1 =
                stub(call -> {
                    if (draining.get()) {
                        call.respondText(503, "application/json", "{\"error\": {}}");
                        return;
                    }
                    assertThat(finish.await(30, TimeUnit.SECONDS)).isTrue();
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var router = registering();
        try (var instance = new Heartbeats(router.registrationAddress().orElseThrow())) {
            var prefill = ping("P", p.uri(), 21_001);
            var first = ping("D", d1.uri(), 22_001);
            instance.say(prefill, first);
            await(() -> instances(router, "decode") == 1 && instances(router, "prefill") == 1);
            var running =
                    CompletableFuture.supplyAsync(() -> {
                        try {
                            return ask(router, REQUEST).body();
                        } catch (Exception e) {
                            throw new AssertionError(e);
                        }
                    });
            d1.seen.take();
            var d2 = stub(call -> call.respondText(200, "application/json", D_ANSWER));
            var second = ping("D", d2.uri(), 22_002);
            instance.say(prefill, first, second);
            await(() -> instances(router, "decode") == 2); // one more at run time
            draining.set(true);
            d1.health = 503;
            for (int i = 0; i < 6; i++) {
                assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
                assertThat(d2.seen.take()).isNotNull();
            }
            finish.countDown();
            assertThat(running.get(30, TimeUnit.SECONDS)).isEqualTo(D_ANSWER);
            instance.say(
                    prefill,
                    second,
                    ping("BYE", d1.uri(), 22_009), // another one's
                    ping("BYE", d1.uri(), 22_001));
            await(() -> listed(router, d1.uri()) == 0);
            assertThat(listed(router, d2.uri())).isEqualTo(1);
            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
        }
    }

    @Test
    @DisplayName("P20 what instances refuse is relayed, and never an empty success")
    void whatInstancesRefuseIsRelayedAndNeverAnEmptySuccess() throws Exception {
        var status = new AtomicInteger(500);
        var onPrefill = new AtomicBoolean();
        var p =
                stub(call -> {
                    int code = onPrefill.get() ? status.get() : 200;
                    call.respondText(code, "application/json", "{\"choices\": []}");
                });
        var d =
                stub(call -> {
                    if (onPrefill.get()) { // waits for the prompt, which does not come
                        var cancelled = new CompletableFuture<Void>();
                        call.onCancel(() -> cancelled.complete(null));
                        cancelled.orTimeout(30, TimeUnit.SECONDS).join();
                    }
                    int code = onPrefill.get() ? 200 : status.get();
                    call.respondText(code, "application/json", "{\"error\": {}}");
                });
        var router = registering();
        try (var instance = new Heartbeats(router.registrationAddress().orElseThrow())) {
            instance.say(ping("P", p.uri(), 21_001), ping("D", d.uri(), 22_001));
            await(() -> instances(router, "decode") == 1 && instances(router, "prefill") == 1);
            for (int code : new int[] {500, 400, 429}) {
                status.set(code);
                assertThat(ask(router, REQUEST).statusCode()).isEqualTo(code);
            }
            onPrefill.set(true);
            status.set(400);
            assertThat(ask(router, REQUEST).statusCode()).as("of the prefill leg").isEqualTo(400);
        }
    }

    private static int listed(PdRouter router, URI uri) {
        try {
            int count = 0;
            var health = TestClient.json(TestClient.get(router.port(), "/health").body());
            for (var each : health.path("instances")) {
                count += each.path("url").asString().equals(uri.toString()) ? 1 : 0;
            }
            return count;
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    /// Says the same again and again, so that nobody expires on a machine that is busy. On several
    /// connections: JeroMQ stalls in some greetings.
    private static final class Heartbeats implements AutoCloseable {
        private static final byte[][] NOTHING = {};

        private volatile byte[][] messages = NOTHING;
        private volatile boolean closed;
        private final Thread thread;

        Heartbeats(String address) {
            thread = Thread.ofPlatform().daemon().start(() -> run(address));
        }

        private void run(String address) {
            try (var context = new ZContext()) {
                var sockets = Stream.generate(() -> socket(context, address)).limit(4).toList();
                while (!closed) {
                    for (var message : messages) {
                        sockets.forEach(socket -> socket.send(message, ZMQ.DONTWAIT));
                    }
                    LockSupport.parkNanos(50_000_000);
                }
            }
        }

        private static ZMQ.Socket socket(ZContext context, String address) {
            var socket = context.createSocket(SocketType.DEALER);
            socket.setLinger(0);
            socket.connect(address);
            return socket;
        }

        /// From now on these.
        void say(byte[]... now) {
            messages = now;
        }

        @Override
        public void close() {
            closed = true;
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static void await(Callable<Boolean> condition) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (!condition.call()) {
            assertThat(limit.passed()).as("it never happens").isFalse();
            LockSupport.parkNanos(50_000_000);
        }
    }

    private static int instances(PdRouter router, String role) {
        try {
            var health = TestClient.json(TestClient.get(router.port(), "/health").body());
            return health.path(role + "_instances").asInt();
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private static byte[] ping(String type, URI http, int zmqPort) {
        var out = new ByteArrayOutputStream();
        try {
            out.write(0x83);
            for (var text :
                    List.of(
                            "type",
                            type,
                            "http_address",
                            http.getAuthority(),
                            "zmq_address",
                            "127.0.0.1:" + zmqPort)) {
                var bytes = text.getBytes(StandardCharsets.UTF_8);
                out.write(0xa0 | bytes.length);
                out.write(bytes);
            }
        } catch (IOException e) {
            throw new AssertionError(e);
        }
        return out.toByteArray();
    }
}
