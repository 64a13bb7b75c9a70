// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.backend.mooncake.te.peers.EndlessAnswer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

class BootstrapTest {
    private final BootstrapServer server = BootstrapServer.start("127.0.0.1", 0);
    private final URI base = URI.create("http://127.0.0.1:" + server.port());
    private final BootstrapClient client = new BootstrapClient(Duration.ofSeconds(60));
    private final HttpClient http = HttpClient.newHttpClient();

    @AfterEach
    void close() {
        client.close();
        http.close();
        server.close();
    }

    private static long watches() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("mooncake-bootstrap-watch"))
                .count();
    }

    /// Whoever waits for the port tries again and again.
    @Test
    void aServerThatFindsItsPortBusyLeavesNoThread() throws Exception {
        long before = watches();
        assertThat(before).isPositive();
        assertThatThrownBy(() -> BootstrapServer.start("127.0.0.1", server.port()))
                .hasMessageContaining("set bootstrap_port to a free one");
        for (int i = 0; i < 6_000 && watches() > before; i++) {
            TimeUnit.MILLISECONDS.sleep(10);
        }
        assertThat(watches()).isLessThanOrEqualTo(before);
    }

    @Test
    void listsAVllmWorkerExactlyAsVllmDoes() throws Exception {
        assertThat(get("/query").body()).isEqualTo("{}");
        var answer =
                post(
                        "{\"engine_id\":\"e1\",\"dp_rank\":0,\"tp_rank\":\"0\",\"pp_rank\":0,\"addr\":\"tcp://10.0.0.2:34567\",\"more\":1}");
        assertThat(answer.statusCode()).isEqualTo(200);
        assertThat(answer.body()).isEqualTo("{\"status\":\"ok\"}");
        assertThat(get("/query").body())
                .isEqualTo(
                        "{\"0\":{\"engine_id\":\"e1\",\"worker_addr\":{\"0\":{\"0\":\"tcp://10.0.0.2:34567\"}}}}");
    }

    @Test
    void answersFaultsAsVllmDoes() throws Exception {
        assertThat(post("not json").statusCode()).isEqualTo(422);
        assertThat(
                        post("{\"engine_id\":7,\"dp_rank\":0,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"x\"}")
                                .statusCode())
                .isEqualTo(422);
        assertThat(
                        post("{\"engine_id\":\"e\",\"dp_rank\":0.5,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"x\"}")
                                .statusCode())
                .isEqualTo(422);
        assertThat(post("{\"engine_id\":\"e\"}").body()).contains("dp_rank");
        assertThat(post("x".repeat(70_000)).statusCode()).isEqualTo(413);
        assertThatThrownBy(() -> post("x".repeat(5_000_000))).isInstanceOf(IOException.class);
        assertThat(get("/register").statusCode()).isEqualTo(405);
        assertThat(get("/elsewhere").statusCode()).isEqualTo(404);
        var untyped =
                HttpRequest.newBuilder(base.resolve("/register"))
                        .POST(HttpRequest.BodyPublishers.ofString("{}"))
                        .build();
        assertThat(http.send(untyped, HttpResponse.BodyHandlers.ofString()).statusCode())
                .isEqualTo(422);
        assertThat(get("/query").body()).isEqualTo("{}");
    }

    @Test
    void refusesAClashWithALivingWorkerAndReplacesADeadOne() throws Exception {
        try (var first = new SideChannel("first")) {
            var living = first.listen("127.0.0.1", (_, _) -> {});
            client.register(base, plain("e1", 0, living));
            client.register(base, plain("e1", 0, living)); // an identical repetition is fine
            assertClash(
                    plain("e1", 0, living),
                    plain("e1", 0, "tcp://127.0.0.1:1"),
                    "already registered at " + living);
            assertClash(
                    plain("e1", 0, living),
                    plain("e2", 0, "tcp://127.0.0.1:1"),
                    "already registered with engine_id e1");
        }
        client.register(base, plain("e2", 0, "tcp://127.0.0.1:2"));
        assertThat(entry().engineId()).isEqualTo("e2");
        assertThat(entry().workers().values()).containsExactly("tcp://127.0.0.1:2");
    }

    /// A worker that says nothing for two seconds counts as dead, also where it is the machine that
    /// does not let it run; then once more.
    private void assertClash(WorkerRegistration living, WorkerRegistration other, String why)
            throws InterruptedException {
        for (int tries = 0; tries < 5; tries++) {
            client.register(base, living);
            try {
                client.register(base, other);
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.PEER_REFUSED);
                assertThat(e).hasMessageContaining(why);
                return;
            }
        }
        throw new AssertionError("a living worker was replaced each time");
    }

    @Test
    void aRestartedEngineWithTheSameNameReplacesItsDeadSelf() throws Exception {
        client.register(base, kvferry("e1", 0, 2, "start-1", "tcp://127.0.0.1:1"));
        client.register(base, kvferry("e1", 1, 2, "start-1", "tcp://127.0.0.1:2"));
        assertThat(entry().complete()).isTrue();
        client.register(base, kvferry("e1", 1, 2, "start-2", "tcp://127.0.0.1:3"));
        var starting = entry();
        assertThat(starting.incarnation()).isEqualTo("start-2");
        assertThat(starting.complete()).isFalse();
        assertThat(get("/query").body())
                .as("nothing half-started is shown to vLLM decoders")
                .isEqualTo("{}");
        client.register(base, kvferry("e1", 0, 2, "start-2", "tcp://127.0.0.1:4"));
        assertThat(entry().complete()).isTrue();
        assertThat(entry().kvferry()).isTrue();
        assertThat(get("/query").body()).doesNotContain("kvferry").contains("tcp://127.0.0.1:4");
    }

    @Test
    void kvferryWorkersExpireUnlessTheyRenew() {
        var now = new AtomicLong();
        var registry = new BootstrapRegistry(now::get);
        registry.offer(kvferry("e", 0, 1, "s", "tcp://h:1"), "h");
        now.addAndGet(Duration.ofSeconds(9).toNanos());
        registry.offer(kvferry("e", 0, 1, "s", "tcp://h:1"), "h");
        now.addAndGet(Duration.ofSeconds(9).toNanos());
        assertThat(registry.entries()).hasSize(1);
        now.addAndGet(Duration.ofSeconds(2).toNanos());
        assertThat(registry.entries()).isEmpty();
        assertThat(registry.offer(plain("other", 0, "tcp://h:2"), "h"))
                .isInstanceOf(BootstrapRegistry.Accepted.class);
        now.addAndGet(Duration.ofDays(30).toNanos());
        assertThat(registry.entries()).as("others never renew, so they never expire").hasSize(1);
    }

    @Test
    void aBusyPortIsSaid() {
        assertThatThrownBy(() -> BootstrapServer.start("127.0.0.1", server.port()))
                .hasMessageContaining("bootstrap_port")
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE));
    }

    /// More of them than calls are worked on at a time.
    @Test
    void callersThatStopInTheMiddleHoldUpNobodyAndAreDropped() throws Exception {
        // The limit is that of whoever stands still for lack of a processor, too.
        try (var patient = BootstrapServer.start("127.0.0.1", 0, Duration.ofSeconds(60));
                var hasty = BootstrapServer.start("127.0.0.1", 0, Duration.ofMillis(300))) {
            var halves = new ArrayList<Socket>();
            try {
                stopInTheMiddle(patient.port(), halves);
                for (int i = 0; i < 50; i++) { // as if all of them had been read by now
                    assertThat(client.query(URI.create("http://127.0.0.1:" + patient.port())))
                            .isEmpty();
                }
                var dropped = new ArrayList<Socket>();
                try {
                    stopInTheMiddle(hasty.port(), dropped);
                    for (var socket : dropped) {
                        assertEnds(socket);
                    }
                } finally {
                    for (var socket : dropped) {
                        socket.close();
                    }
                }
            } finally {
                for (var socket : halves) {
                    socket.close();
                }
            }
        }
    }

    private static void stopInTheMiddle(int port, List<Socket> to) throws IOException {
        for (int i = 0; i < 300; i++) {
            var socket = new Socket(InetAddress.getLoopbackAddress(), port);
            to.add(socket);
            socket.getOutputStream()
                    .write(
                            "POST /register HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"engine"
                                    .getBytes(StandardCharsets.US_ASCII));
        }
    }

    private static void assertEnds(Socket socket) throws IOException {
        socket.setSoTimeout(60_000);
        try {
            assertThat(socket.getInputStream().read()).as("the end").isEqualTo(-1);
        } catch (SocketException reset) {
            assertThat(reset).hasMessageContaining("reset");
        }
    }

    @Test
    void headersThatNeverEndAreCutOff() throws Exception {
        try (var hasty = BootstrapServer.start("127.0.0.1", 0, Duration.ofMillis(300));
                var socket = new Socket(InetAddress.getLoopbackAddress(), hasty.port())) {
            socket.getOutputStream().write("GET /query HTTP/1.1\r\nX: ".getBytes(US_ASCII));
            assertEnds(socket);
        }
    }

    @Test
    void registrationsThatFitNoEngineAreRefused() throws Exception {
        client.register(base, kvferry("e1", 0, 1, "start-1", "tcp://127.0.0.1:1"));
        for (var strange :
                List.of(
                        json("e1", 1, "\"kvferry_incarnation\":\"start-1\",\"kvferry_tp_size\":1"),
                        json("e1", 7, "\"kvferry_incarnation\":\"start-1\",\"kvferry_tp_size\":8"),
                        json("e1", 1, "\"more\":0,\"kvferry_tp_size\":8"),
                        json("e1", -1, "\"more\":0,\"kvferry_tp_size\":8"),
                        json("e2", 2_000_000_000, "\"more\":0,\"kvferry_tp_size\":8"),
                        json("e".repeat(300), 0, "\"more\":0,\"kvferry_tp_size\":8"),
                        json(
                                "e2",
                                0,
                                "\"kvferry_incarnation\":\"x\",\"kvferry_tp_size\":2147483647"))) {
            assertThat(post(strange).statusCode()).as(strange).isIn(400, 422);
        }
        assertThat(entry().complete()).isTrue();
        assertThat(entry().workers()).hasSize(1);
        assertThat(get("/query").body()).contains("e1");
    }

    private static String json(String engine, int tpRank, String more) {
        return "{\"engine_id\":\"%s\",\"dp_rank\":0,\"tp_rank\":%d,\"pp_rank\":0,\"addr\":\"tcp://127.0.0.1:9\",%s,\"kvferry_pp_size\":1,\"kvferry_lease_ms\":10000}"
                .formatted(engine, tpRank, more);
    }

    /// What it takes to say them stands in the listing.
    @Test
    void nobodyEndsOrChangesTheRegistrationOfALivingWorker() throws Exception {
        try (var worker = new ServerSocket(0, 8, InetAddress.getLoopbackAddress())) {
            var addr = "tcp://127.0.0.1:" + worker.getLocalPort();
            client.register(base, kvferry("e1", 0, 1, "start-1", addr));
            var before = entry();
            var same =
                    "{\"engine_id\":\"e1\",\"dp_rank\":0,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"%s\",\"kvferry_incarnation\":\"start-1\",\"kvferry_tp_size\":1,\"kvferry_pp_size\":1,\"kvferry_grants\":%b,\"kvferry_lease_ms\":1}";
            assertThat(post(same.formatted(addr, !before.grants())).statusCode()).isEqualTo(400);
            assertThat(post(same.formatted(addr, before.grants())).statusCode()).isEqualTo(200);
            Thread.sleep(20); // more than the lease that the stranger would give it
            assertThat(entry()).isEqualTo(before);
        }
    }

    /// Decoders would give it capabilities that it does not know.
    @Test
    void aLivingVllmWorkerIsNotMadeAKvferryWorker() throws Exception {
        try (var worker = new SideChannel("worker")) {
            var addr = worker.listen("127.0.0.1", (_, _) -> {});
            client.register(base, plain("e1", 0, addr));
            var before = entry();
            var strange =
                    "{\"engine_id\":\"e1\",\"dp_rank\":0,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"%s\",\"kvferry_incarnation\":\"x\",\"kvferry_tp_size\":1,\"kvferry_pp_size\":1,\"kvferry_grants\":true,\"kvferry_lease_ms\":1}"
                            .formatted(addr);
            int status = post(strange).statusCode();
            for (int tries = 1; status == 200 && tries < 5; tries++) { // as in assertClash
                client.register(base, plain("e1", 0, addr));
                status = post(strange).statusCode();
            }
            assertThat(status).isEqualTo(400);
            assertThat(entry()).isEqualTo(before);
        }
    }

    @Test
    void twoRanksOfAnEngineAreNotListedAtOneAddress() throws Exception {
        client.register(base, kvferry("e1", 0, 2, "start-1", "tcp://127.0.0.1:1"));
        assertThatThrownBy(() ->
                        client.register(base, kvferry("e1", 1, 2, "start-1", "tcp://127.0.0.1:1")))
                .hasMessageContaining("tcp://127.0.0.1:1 is that of another rank")
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_REFUSED));
        client.register(base, kvferry("e1", 1, 2, "start-1", "tcp://127.0.0.1:2"));
        assertThat(entry().complete()).isTrue();
        client.register(base, kvferry("e1", 1, 2, "start-2", "tcp://127.0.0.1:1"));
        assertThat(entry().workers().values())
                .as("after a restart")
                .containsExactly("tcp://127.0.0.1:1");
    }

    @Test
    void twoRanksOfAnEngineAreNotListedAtTwoSpellingsOfOneAddress() throws Exception {
        client.register(base, kvferry("e1", 0, 2, "start-1", "tcp://127.0.0.1:1"));
        for (var spelling : List.of("tcp://localhost:1", "tcp://127.0.0.1:01", "tcp://[::1]:1")) {
            assertThatThrownBy(
                            () -> client.register(base, kvferry("e1", 1, 2, "start-1", spelling)))
                    .hasMessageContaining(spelling + " is that of another rank")
                    .hasMessageContaining("listed at tcp://127.0.0.1:1");
        }
        client.register(base, kvferry("e1", 1, 2, "start-1", "tcp://127.0.0.2:1"));
        assertThat(entry().complete()).isTrue();
    }

    /// More workers than are looked at together, of which one of the others lives.
    @Test
    void aWorkerThatNobodyHasLookedAtIsNotTakenOut() throws Exception {
        int size = Probe.TOGETHER + 16;
        var order = new BootstrapRegistry(() -> 0);
        for (int rank = 0; rank < size; rank++) {
            order.offer(kvferry("e1", rank, size, "start-1", "tcp://127.0.0.1:" + rank), "here");
        }
        var newcomer = kvferry("e2", 0, 1, "start-2", "tcp://127.0.0.1:9");
        var holders = ((BootstrapRegistry.Occupied) order.offer(newcomer, "here")).holders();
        var late = URI.create(holders.get(Probe.TOGETHER)).getPort();
        try (var worker = new SideChannel("worker")) {
            var living = worker.listen("127.0.0.1", (_, _) -> {});
            for (int tries = 0; tries < 5; tries++) { // as in assertClash
                for (int rank = 0; rank < size; rank++) {
                    var address = rank == late ? living : "tcp://127.0.0.2:" + (rank + 1);
                    client.register(base, kvferry("e1", rank, size, "start-1", address));
                }
                try {
                    client.register(base, newcomer);
                } catch (KvFerryException e) {
                    assertThat(e).hasMessageContaining("already registered with engine_id e1");
                    assertThat(entry().workers()).containsValue(living);
                    return;
                }
            }
            throw new AssertionError("a living worker was taken out each time");
        }
    }

    /// Its ranks come in any order, and a stranger may add one.
    @Test
    void aRankBehindAGapDoesNotCount() throws Exception {
        client.register(base, plain("v", 0, "tcp://127.0.0.1:1"));
        client.register(base, plain("v", 7, "tcp://127.0.0.1:2"));
        assertThat(entry().complete()).isTrue();
        assertThat(entry().workers().values()).containsExactly("tcp://127.0.0.1:1");
        assertThat(get("/query").body())
                .isEqualTo(
                        "{\"0\":{\"engine_id\":\"v\",\"worker_addr\":{\"0\":{\"0\":\"tcp://127.0.0.1:1\"}}}}");
        client.register(base, plain("v", 1, "tcp://127.0.0.1:3"));
        assertThat(entry().workers()).hasSize(2);
        assertThatThrownBy(() -> client.register(base, plain("v", 2, "tcp://127.0.0.1:3")))
                .hasMessageContaining("is that of another rank");
    }

    @Test
    void anEngineThatHasNotRegisteredItsFirstRankIsNotListed() throws Exception {
        client.register(base, plain("v", 1, "tcp://127.0.0.1:2"));
        assertThat(get("/query").body()).isEqualTo("{}");
        assertThat(entry().complete()).isFalse();
        client.register(base, plain("v", 0, "tcp://127.0.0.1:1"));
        assertThat(entry().workers()).hasSize(2);
    }

    @Test
    void aWorkerOfAnotherHostIsNotAddedToAnEngineOfUnknownSize() {
        var registry = new BootstrapRegistry(System::nanoTime);
        registry.offer(plain("v", 0, "tcp://10.0.0.1:1"), "10.0.0.1");
        assertThat(registry.offer(plain("v", 1, "tcp://10.0.0.1:2"), "10.0.0.1"))
                .isInstanceOf(BootstrapRegistry.Accepted.class);
        assertThat(registry.offer(plain("v", 2, "tcp://10.0.0.9:3"), "10.0.0.9"))
                .isInstanceOf(BootstrapRegistry.Occupied.class);
        assertThat(registry.entries().values())
                .singleElement()
                .satisfies(entry -> assertThat(entry.workers()).hasSize(2));
    }

    @Test
    void nobodyTakesThePlaceOfTheEngineThatRunsTheService() throws Exception {
        var own = new ReservedEngine("k", 5, "start-1");
        try (var stranger = new SideChannel("stranger");
                var embedded = BootstrapServer.start("127.0.0.1", 0, Optional.empty(), own)) {
            var there = URI.create("http://127.0.0.1:" + embedded.port());
            var addr = stranger.listen("127.0.0.1", (_, _) -> {});
            var none = Optional.<WorkerRegistration.Extra>empty();
            var early = new WorkerRegistration.Extra("x", 1, 1, true, Duration.ofSeconds(10));
            for (var strange :
                    List.of(
                            new WorkerRegistration("k", 5, 0, 0, addr, none),
                            new WorkerRegistration("k", 0, 0, 0, addr, none),
                            new WorkerRegistration("other", 5, 0, 0, addr, none),
                            new WorkerRegistration("k", 5, 0, 0, addr, Optional.of(early)))) {
                assertThatThrownBy(() -> client.register(there, strange))
                        .as("%s", strange)
                        .hasMessageContaining("the engine that runs this service");
            }
            var extra = new WorkerRegistration.Extra("start-1", 1, 1, true, Duration.ofSeconds(10));
            client.register(
                    there,
                    new WorkerRegistration("k", 5, 0, 0, "tcp://127.0.0.1:9", Optional.of(extra)));
            assertThat(client.query(there).get(5))
                    .satisfies(entry -> assertThat(entry.complete()).isTrue());
        }
    }

    @Test
    void aSilentListenerKeepsNoEngineOut() throws Exception {
        try (var silent = new ServerSocket(0, 8, InetAddress.getLoopbackAddress())) {
            client.register(base, plain("k", 0, "tcp://127.0.0.1:" + silent.getLocalPort()));
            client.register(base, kvferry("k", 0, 1, "start-1", "tcp://127.0.0.1:9"));
            assertThat(entry().kvferry()).isTrue();
        }
    }

    /// More registrations that clash with a silent holder than holders are looked at a time.
    @Test
    void renewalsNeedNoProbeSlot() throws Exception {
        var renewed =
                new WorkerRegistration(
                        "k", 1, 0, 0, "tcp://127.0.0.1:9", kvferry("k", 0, 1, "1", "-").extra());
        client.register(base, renewed);
        var full = new CountDownLatch(1);
        var done = new AtomicBoolean();
        var silent = new ArrayList<ServerSocket>();
        try (var strangers = Executors.newVirtualThreadPerTaskExecutor()) {
            try {
                for (int i = 0; i < 80; i++) {
                    silent.add(new ServerSocket(0, 512, InetAddress.getLoopbackAddress()));
                    var addr = "tcp://127.0.0.1:" + silent.getLast().getLocalPort();
                    var body =
                            "{\"engine_id\":\"s\",\"dp_rank\":0,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"%s\"}"
                                    .formatted(addr);
                    strangers.submit(() -> {
                        while (!done.get()) {
                            if (post(body).statusCode() == 503) {
                                full.countDown();
                                Thread.sleep(10);
                            }
                        }
                        return null;
                    });
                }
                assertThat(full.await(30, TimeUnit.SECONDS)).as("all slots are taken").isTrue();
                for (int i = 0; i < 20; i++) {
                    client.register(base, renewed);
                }
            } finally {
                done.set(true);
            }
        } finally {
            for (var holder : silent) {
                holder.close();
            }
        }
        assertThat(client.query(base)).containsKey(1);
    }

    @Test
    void aLeaseIsLimited() throws Exception {
        var endless =
                "{\"engine_id\":\"e\",\"dp_rank\":0,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"tcp://h:9\",\"kvferry_incarnation\":\"x\",\"kvferry_tp_size\":1,\"kvferry_pp_size\":1,\"kvferry_lease_ms\":2147483647}";
        assertThat(post(endless).statusCode()).isEqualTo(422);
    }

    @Test
    void oneHostCannotFillTheTable() {
        var registry = new BootstrapRegistry(System::nanoTime);
        int taken = 0;
        for (int i = 0; i < 2 * BootstrapRegistry.MAX_ENGINES_PER_HOST; i++) {
            var registration =
                    new WorkerRegistration("e" + i, i, 0, 0, "tcp://h:1", Optional.empty());
            taken +=
                    registry.offer(registration, "h") instanceof BootstrapRegistry.Accepted ? 1 : 0;
        }
        assertThat(taken).isEqualTo(BootstrapRegistry.MAX_ENGINES_PER_HOST);
        var other = new WorkerRegistration("other", 60_000, 0, 0, "tcp://i:1", Optional.empty());
        assertThat(registry.offer(other, "i")).isInstanceOf(BootstrapRegistry.Accepted.class);
    }

    @Test
    void aWorkerThatNeverRenewsAndWhoseSideChannelDoesNotAnswerIsTakenOut() throws Exception {
        var registry = new BootstrapRegistry(System::nanoTime);
        try (var living = new SideChannel("living");
                var silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                var watch = new LeaselessWatch(registry, Duration.ofMillis(500))) {
            registry.offer(plain("fake", 0, "tcp://127.0.0.1:" + freePort()), "h");
            registry.offer(
                    new WorkerRegistration(
                            "real",
                            1,
                            0,
                            0,
                            living.listen("127.0.0.1", (_, _) -> {}),
                            Optional.empty()),
                    "h");
            registry.offer(
                    new WorkerRegistration(
                            "silent",
                            2,
                            0,
                            0,
                            "tcp://127.0.0.1:" + silent.getLocalPort(),
                            Optional.empty()),
                    "h");
            watch.look();
            watch.look();
            assertThat(registry.entries()).as("one that is restarting").hasSize(3);
            watch.look();
            assertThat(registry.entries().keySet()).containsExactly(1);
        }
    }

    private static Set<Thread> selectors() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().matches("HttpClient-.*-SelectorManager"))
                .collect(Collectors.toSet());
    }

    /// Ends the thread of the JDK's client that was made since, as an error on it would.
    private static void endSelectorsBut(Set<Thread> others) throws InterruptedException {
        var made = selectors();
        made.removeAll(others);
        assertThat(made).hasSize(1);
        for (var thread : made) {
            thread.interrupt();
            thread.join(Duration.ofSeconds(60));
            assertThat(thread.isAlive()).isFalse();
        }
    }

    @Test
    void theClientGoesOnWhenTheThreadOfTheJdksClientHasEnded() throws Exception {
        var others = selectors();
        var lasting = new BootstrapClient(Duration.ofSeconds(60));
        try (lasting) {
            assertThat(lasting.query(base)).isEmpty();
            endSelectorsBut(others);
            assertThat(lasting.query(base)).isEmpty();
        }
        assertThatThrownBy(() -> lasting.query(base))
                .as("closed for good")
                .isInstanceOf(KvFerryException.class);
    }

    @Test
    void aWorkerIsRegisteredAgainThoughTheThreadOfTheJdksClientHasEnded() throws Exception {
        int port = freePort();
        var there = URI.create("http://127.0.0.1:" + port);
        var worker = kvferry("e1", 0, 1, "start-1", "tcp://127.0.0.1:9");
        var others = selectors();
        var first = BootstrapServer.start("127.0.0.1", port);
        try (var _ =
                BootstrapRegistrar.start(there, worker, Duration.ofSeconds(60), Optional.empty())) {
            endSelectorsBut(others);
            first.close();
            try (var _ = BootstrapServer.start("127.0.0.1", port)) {
                for (int i = 0; i < 300 && client.query(there).isEmpty(); i++) {
                    TimeUnit.MILLISECONDS.sleep(100);
                }
                assertThat(client.query(there)).containsKey(0);
            }
        } finally {
            first.close();
        }
    }

    @Test
    void theClientCodesEveryFailure() throws Exception {
        var gone = URI.create("http://127.0.0.1:" + freePort());
        assertThatThrownBy(() -> client.query(gone))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_LOST));
        try (var silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                var hasty = new BootstrapClient(Duration.ofMillis(200))) {
            var deaf = URI.create("http://127.0.0.1:" + silent.getLocalPort());
            assertThatThrownBy(() -> hasty.query(deaf))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        assertThat(BootstrapClient.baseAddress("h:1")).isEqualTo(URI.create("http://h:1"));
        assertThat(BootstrapClient.baseAddress("http://h:1/")).isEqualTo(URI.create("http://h:1"));
        for (var wrong :
                new String[] {
                    "h", "https://h:1", "http://", "file:///etc/passwd", "::", "h:70000", "h:0"
                }) {
            assertThatThrownBy(() -> BootstrapClient.baseAddress(wrong))
                    .as(wrong)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
        }
    }

    @Test
    void answersAreBoundedInBytesAndInTime() throws Exception {
        try (var endless = new EndlessAnswer(Long.MAX_VALUE)) {
            assertThatThrownBy(() -> client.query(endless.uri()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_LOST));
            assertThat(endless.sent()).as("taken, or in socket buffers").isLessThan(64 << 20);
        }
        try (var stalled = new EndlessAnswer(100);
                var hasty = new BootstrapClient(Duration.ofMillis(500))) {
            assertThatThrownBy(() -> hasty.query(stalled.uri()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
    }

    private EngineEntry entry() throws InterruptedException {
        return Objects.requireNonNull(client.query(base).get(0));
    }

    private static WorkerRegistration plain(String engine, int tpRank, String addr) {
        return new WorkerRegistration(engine, 0, tpRank, 0, addr, Optional.empty());
    }

    private static WorkerRegistration kvferry(
            String engine, int tpRank, int tpSize, String incarnation, String addr) {
        var extra =
                new WorkerRegistration.Extra(incarnation, tpSize, 1, true, Duration.ofSeconds(10));
        return new WorkerRegistration(engine, 0, tpRank, 0, addr, Optional.of(extra));
    }

    private HttpResponse<String> get(String path) throws Exception {
        return http.send(
                HttpRequest.newBuilder(base.resolve(path)).GET().build(),
                HttpResponse.BodyHandlers.ofString());
    }

    private HttpResponse<String> post(String body) throws Exception {
        var request =
                HttpRequest.newBuilder(base.resolve("/register"))
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofString(body))
                        .build();
        return http.send(request, HttpResponse.BodyHandlers.ofString());
    }

    /// Sizes that are computed from them would be negative.
    @ParameterizedTest
    @ValueSource(strings = {"-1", "2147483647", "2147483648"})
    void ranksThatNoWorkerCanHaveAreNoList(String rank) {
        var list = "{'0':{'engine_id':'e','worker_addr':{'%s':{'0':'tcp://127.0.0.1:1'}}}}";
        var body = list.formatted(rank).replace('\'', '"').getBytes(US_ASCII);
        assertThatThrownBy(() -> BootstrapJson.readEntries(body))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PROTOCOL));
    }
}
