// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;

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
                                true, URI.create("http://h:8000"), URI.create("tcp://h:21001")));
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
    void routesToThoseWhoRegisterUntilTheyAreSilent() throws Exception {
        var p = stub(call -> call.respondText(200, "application/json", "{\"choices\": []}"));
        var d = stub(call -> call.respondText(200, "application/json", D_ANSWER));
        var settings = RouterSettings.of(HandOff.P2P, List.of(), List.of(), List.of());
        var router =
                new PdRouter(
                        settings,
                        TestClient.loopback(),
                        Optional.empty(),
                        Optional.of(new InetSocketAddress("127.0.0.1", 0)));
        open.add(router);
        router.start();
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
