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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/// Instances that register by heartbeat, over a ZeroMQ library that nobody here wrote.
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
        try (var context = new ZContext()) {
            var instance = new Several(context, router.registrationAddress().orElseThrow());
            instance.send("garbage".getBytes(StandardCharsets.UTF_8));
            await(
                    () -> instances(router, "decode") == 1 && instances(router, "prefill") == 1,
                    () -> {
                        instance.send(ping("P", p.uri(), 21_001));
                        instance.send(ping("D", d.uri(), 22_001));
                    });
            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
            assertThat(d.seen.take().params().path("prefill_addr").asString(""))
                    .isEqualTo("127.0.0.1:21001");
            // Whether the prefill leg arrives is open: it ends with an answer that comes before it.
            await(
                    () -> {
                        try {
                            assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
                            return d.seen.take()
                                    .params()
                                    .path("prefill_addr")
                                    .asString("")
                                    .equals("127.0.0.1:21005");
                        } catch (Exception e) {
                            throw new AssertionError(e);
                        }
                    },
                    () -> {
                        instance.send(ping("P", p.uri(), 21_005)); // started anew
                        instance.send(ping("D", d.uri(), 22_001));
                    });
            await(
                    () -> instances(router, "decode") == 0 && instances(router, "prefill") == 0,
                    () -> {}); // silent for 5 s
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(503);
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
        try (var context = new ZContext()) {
            var instance = new Several(context, router.registrationAddress().orElseThrow());
            Runnable first =
                    () -> {
                        instance.send(ping("P", p.uri(), 21_001));
                        instance.send(ping("D", d1.uri(), 22_001));
                    };
            await(
                    () -> instances(router, "decode") == 1 && instances(router, "prefill") == 1,
                    first);
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
            Runnable both =
                    () -> {
                        first.run();
                        instance.send(ping("D", d2.uri(), 22_002));
                    };
            await(() -> instances(router, "decode") == 2, both); // one more at run time
            draining.set(true);
            d1.health = 503;
            for (int i = 0; i < 6; i++) {
                both.run();
                assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
                assertThat(d2.seen.take()).isNotNull();
            }
            finish.countDown();
            assertThat(running.get(30, TimeUnit.SECONDS)).isEqualTo(D_ANSWER);
            await(
                    () -> listed(router, d1.uri()) == 0,
                    () -> {
                        instance.send(ping("P", p.uri(), 21_001));
                        instance.send(ping("D", d2.uri(), 22_002));
                        instance.send(ping("BYE", d1.uri(), 22_009)); // another one's
                        instance.send(ping("BYE", d1.uri(), 22_001));
                    });
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
                        LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(2));
                    }
                    int code = onPrefill.get() ? 200 : status.get();
                    call.respondText(code, "application/json", "{\"error\": {}}");
                });
        var router = registering();
        try (var context = new ZContext()) {
            var instance = new Several(context, router.registrationAddress().orElseThrow());
            await(
                    () -> instances(router, "decode") == 1 && instances(router, "prefill") == 1,
                    () -> {
                        instance.send(ping("P", p.uri(), 21_001));
                        instance.send(ping("D", d.uri(), 22_001));
                    });
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

    /// Several connections that say the same: JeroMQ stalls in some greetings.
    private record Several(List<ZMQ.Socket> sockets) {
        Several(ZContext context, String address) {
            this(Stream.generate(() -> socket(context, address)).limit(4).toList());
        }

        private static ZMQ.Socket socket(ZContext context, String address) {
            var socket = context.createSocket(SocketType.DEALER);
            socket.setLinger(0);
            socket.connect(address);
            return socket;
        }

        void send(byte[] message) {
            sockets.forEach(socket -> socket.send(message));
        }
    }

    private static void await(BooleanSupplier condition, Runnable meanwhile) {
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as("it never happens").isFalse();
            meanwhile.run();
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
