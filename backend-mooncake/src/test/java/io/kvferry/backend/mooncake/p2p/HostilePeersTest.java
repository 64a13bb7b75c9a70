// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.Outcomes.assertFailed;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.HttpServer;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillService;
import io.kvferry.backend.mooncake.p2p.testkit.CutLink;
import io.kvferry.backend.mooncake.p2p.testkit.Heard;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse.Status;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.function.UnaryOperator;

/// Peers that violate the protocol: affected requests fail with a code, and all others continue.
class HostilePeersTest {
    private final BootstrapServer bootstrap = BootstrapServer.start("127.0.0.1", 0);
    private final String base = "http://127.0.0.1:" + bootstrap.port();
    private final SideChannel fake = new SideChannel("fake");

    @AfterEach
    void close() {
        fake.close();
        bootstrap.close();
    }

    /// Registers a prefiller that is not a kvferry one, with answers of the test's choice.
    private void prefiller(BiConsumer<SideChannel.Asker, XferMetadata> behaviour)
            throws InterruptedException {
        register(
                fake.listen(
                        "127.0.0.1",
                        (asker, bytes) -> behaviour.accept(asker, XferDecoder.request(bytes))));
    }

    private void register(String address) throws InterruptedException {
        try (var client = new BootstrapClient(SOON)) {
            client.register(
                    URI.create(base),
                    new WorkerRegistration("fake", 0, 0, 0, address, Optional.empty()));
        }
    }

    private static void answer(
            SideChannel.Asker asker, Status status, List<String> ok, List<String> failed) {
        asker.answer(
                XferEncoder.response(
                        new XferResponse(
                                status, ok, failed, failed.isEmpty() ? "" : "because", 0)));
    }

    private Completion.Result load(TestEngine d) {
        return load(d, "d-1");
    }

    private Completion.Result load(TestEngine d, String name) {
        return d.await(d.beginDecode(d.request(name, 64, 20, prefillAt(base, "fake", "x")), 0));
    }

    private static TestEngine decoder(Map<String, Object> options) {
        var all = new HashMap<>(options);
        all.put("peer_layout", "alike");
        return new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", all);
    }

    @Test
    void aPrefillerThatAnswersGarbageFailsTheLoad() throws InterruptedException {
        prefiller((asker, _) -> asker.answer("garbage".getBytes(UTF_8)));
        try (var d = decoder(Map.of())) {
            assertFailed(load(d), ErrorCode.PROTOCOL, "answered garbage");
        }
    }

    @Test
    void aPrefillerThatFinishesWithoutNamingTheRequestFailsTheLoad() throws InterruptedException {
        prefiller((asker, _) -> answer(asker, Status.FINISH, List.of("somebody else"), List.of()));
        try (var d = decoder(Map.of())) {
            assertFailed(load(d), ErrorCode.PROTOCOL, "without reporting a transfer result");
        }
    }

    @Test
    void aRequestInBothListsHasFailed() throws InterruptedException {
        prefiller((asker, message) -> {
            var all = List.copyOf(message.reqBlocks().keySet());
            answer(asker, Status.FINISH, all, all);
        });
        try (var d = decoder(Map.of())) {
            assertFailed(load(d), ErrorCode.PEER_REFUSED, "because");
        }
    }

    @Test
    void aPrefillerThatContinuesForEverIsCutOff() throws InterruptedException {
        prefiller((asker, _) -> {
            for (int i = 0; i < 100; i++) {
                answer(asker, Status.CONTINUE, List.of(), List.of());
            }
        });
        try (var d = decoder(Map.of())) {
            assertFailed(load(d), ErrorCode.PROTOCOL, "without end");
        }
    }

    @Test
    void aMissingLayoutIsSentAgainAndOnlyOnce() throws InterruptedException {
        var shortForms = new AtomicInteger();
        var fullForms = new AtomicInteger();
        prefiller((asker, message) -> {
            if (message.regions().size() == 0) {
                shortForms.incrementAndGet();
                asker.answer(
                        XferEncoder.response(XferResponse.layoutMiss(message.layoutId(), "d")));
            } else {
                fullForms.incrementAndGet();
                asker.answer(
                        XferEncoder.response(
                                new XferResponse(
                                        Status.FINISH,
                                        List.copyOf(message.reqBlocks().keySet()),
                                        List.of(),
                                        "",
                                        message.layoutId())));
            }
        });
        try (var d = decoder(Map.of("trust_answers", true))) {
            for (int i = 0; i < 3; i++) {
                var request = d.request("d-" + i, 64, 20, prefillAt(base, "fake", "x"));
                assertThat(d.await(d.beginDecode(request, 0)))
                        .isInstanceOf(Completion.Completed.class);
            }
            assertThat(fullForms).hasValue(3);
            assertThat(shortForms).hasValue(2);
        }
    }

    @Test
    void aPrefillerThatNeitherReadsNorWritesEndsAtTheDeadline() throws Exception {
        try (var deaf = new ServerSocket(0, 8, InetAddress.getLoopbackAddress());
                var d = decoder(Map.of("connector_timeout", "300ms"))) {
            register("tcp://127.0.0.1:" + deaf.getLocalPort());
            var result = load(d);
            // The limit is that of the bootstrap service too, which a busy machine may overrun.
            for (int i = 0; i < 20 && isOfTheService(result); i++) {
                result = load(d, "again-" + i);
            }
            assertFailed(result, ErrorCode.TIMEOUT, "no answer within");
        }
    }

    private boolean isOfTheService(Completion.Result result) {
        return result instanceof Completion.Failed(var failure, _)
                && failure.message().contains(base);
    }

    @Test
    void aPrefillerThatDoesNotAnswerLeavesLoadsForAnother() throws Exception {
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", Map.of());
                var d = decoder(Map.of("max_loads", 1))) {
            prefiller((_, _) -> {});
            var held = d.beginDecode(d.request("d-1", 64, 20, prefillAt(base, "fake", "x")), 0);
            p.prefill(p.request("p-1", 64, 5, decodeElsewhere("y")), 3);
            var target = d.request("d-2", 64, 30, prefillAt(p.bootstrap, "p", "y"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
            var more = d.beginDecode(d.request("d-3", 64, 40, prefillAt(base, "fake", "z")), 0);
            assertFailed(d.await(more), ErrorCode.BACKPRESSURE, "max_loads");
            d.revoke(held);
        }
    }

    @Test
    void aListWithAHoleIsNoEngine() throws InterruptedException {
        try (var client = new BootstrapClient(SOON);
                var d = decoder(Map.of())) {
            for (int rank : new int[] {1, 2}) {
                client.register(
                        URI.create(base),
                        new WorkerRegistration(
                                "fake", 0, rank, 0, "tcp://127.0.0.1:" + rank, Optional.empty()));
            }
            assertFailed(load(d), ErrorCode.NOT_FOUND, "incomplete");
        }
    }

    /// The first answer from there would count for both ranks, and half of the heads would miss.
    @Test
    void aListWithTwoRanksAtOneAddressIsNotAsked() throws Exception {
        assertOneAddress(address -> address);
    }

    /// The decoder asks one worker twice, whatever its address is called.
    @Test
    void aListWithTwoSpellingsOfOneAddressIsNotAsked() throws Exception {
        assertOneAddress(address -> address.replace("127.0.0.1:", "LocalHost:0"));
    }

    /// @param spelling of the address of the other rank
    private void assertOneAddress(UnaryOperator<String> spelling) throws Exception {
        var contacts = new AtomicInteger();
        var address = fake.listen("127.0.0.1", (asker, bytes) -> serve(asker, bytes, contacts));
        var other = spelling.apply(address);
        var list =
                "{'0':{'engine_id':'fake','worker_addr':{'0':{'0':'%s'},'1':{'0':'%s'}}}}"
                        .formatted(address, other)
                        .replace('\'', '"')
                        .getBytes(UTF_8);
        var listing =
                HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        listing.createContext(
                "/query",
                exchange -> {
                    exchange.sendResponseHeaders(200, list.length);
                    exchange.getResponseBody().write(list);
                    exchange.close();
                });
        listing.start();
        try (var d = decoder(Map.of("trust_answers", true))) {
            var there = "http://127.0.0.1:" + listing.getAddress().getPort();
            var load = d.beginDecode(d.request("d-1", 64, 20, prefillAt(there, "fake", "x")), 0);
            assertFailed(d.await(load), ErrorCode.INCOMPATIBLE, "both at " + other);
            assertThat(contacts).hasValue(0);
        } finally {
            listing.stop(0);
        }
    }

    /// The names of hosts are not looked up: who is at an address says whether it is meant.
    @Test
    void eachWorkerOfAKvferryPrefillerHearsWhichOneIsMeant() throws Exception {
        var meant = new ConcurrentHashMap<String, String>();
        try (var second = new SideChannel("second");
                var client = new BootstrapClient(SOON);
                var d = decoder(Map.of())) {
            for (int rank = 0; rank < 2; rank++) {
                var name = "rank " + rank;
                var address =
                        (rank == 0 ? fake : second)
                                .listen(
                                        "127.0.0.1",
                                        (asker, bytes) -> {
                                            var message = XferDecoder.request(bytes);
                                            meant.put(
                                                    name,
                                                    message.extension().orElseThrow().worker());
                                            serve(asker, message, new AtomicInteger());
                                        });
                client.register(
                        URI.create(base),
                        new WorkerRegistration(
                                "fake",
                                0,
                                rank,
                                0,
                                address,
                                Optional.of(
                                        new WorkerRegistration.Extra(
                                                "1", 2, 1, true, Duration.ofSeconds(60)))));
            }
            assertThat(
                            d.await(
                                    d.beginDecode(
                                            d.request("d-1", 64, 20, prefillAt(base, "fake", "x")),
                                            0)))
                    .isInstanceOf(Completion.Completed.class);
        }
        assertThat(meant).isEqualTo(Map.of("rank 0", "0/0", "rank 1", "1/0"));
    }

    /// vLLM's ranks register one after the other; who asks in between sees fewer of them, and takes
    /// the parts that these hold for everything.
    @Test
    void aListThatWasStillGrowingIsNotUsed() throws InterruptedException {
        var contacts = new AtomicInteger();
        try (var late = new SideChannel("late");
                var d = decoder(Map.of("trust_answers", true))) {
            var lateAddress =
                    late.listen("127.0.0.1", (asker, bytes) -> serve(asker, bytes, contacts));
            prefiller((asker, message) -> {
                registerRank(1, lateAddress);
                serve(asker, message, contacts);
            });
            assertFailed(load(d), ErrorCode.NOT_FOUND, "listed 1 of its workers, 2 by now");
            assertThat(contacts).hasValue(1);
            for (int i = 2; i < 4; i++) {
                var next = d.request("d-" + i, 64, 20, prefillAt(base, "fake", "y"));
                assertThat(d.await(d.beginDecode(next, 0)))
                        .isInstanceOf(Completion.Completed.class);
            }
            assertThat(contacts).as("both ranks were asked then").hasValue(5);
        }
    }

    private static void serve(SideChannel.Asker asker, byte[] bytes, AtomicInteger contacts) {
        serve(asker, XferDecoder.request(bytes), contacts);
    }

    private static void serve(
            SideChannel.Asker asker, XferMetadata message, AtomicInteger contacts) {
        contacts.incrementAndGet();
        answer(asker, Status.FINISH, List.copyOf(message.reqBlocks().keySet()), List.of());
    }

    private void registerRank(int rank, String address) {
        try (var client = new BootstrapClient(SOON)) {
            client.register(
                    URI.create(base),
                    new WorkerRegistration("fake", 0, rank, 0, address, Optional.empty()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// Greeting, handshake, request and answer, each cut at many places, by FIN and by RST.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aSideChannelCutAnywhereFailsTheLoadAndNothingElse(boolean onTheWayBack) throws Exception {
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", Map.of());
                var d = decoder(Map.of("connector_timeout", "400ms"))) {
            var address = sideChannel(p);
            int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
            int failed = 0;
            for (int bytes = 0; bytes < 1000; bytes += 7 + bytes / 4) {
                var name = "x" + bytes;
                long most = Long.MAX_VALUE;
                try (var link =
                                new CutLink(
                                        port,
                                        onTheWayBack ? most : bytes,
                                        onTheWayBack ? bytes : most,
                                        bytes % 2 == 0);
                        var behind = BootstrapServer.start("127.0.0.1", 0);
                        var client = new BootstrapClient(SOON)) {
                    client.register(
                            URI.create("http://127.0.0.1:" + behind.port()),
                            new WorkerRegistration(
                                    "p",
                                    0,
                                    0,
                                    0,
                                    "tcp://127.0.0.1:" + link.port(),
                                    Optional.of(
                                            new WorkerRegistration.Extra("1", 1, 1, true, SOON))));
                    p.prefill(p.request("p-" + bytes, 64, 5, decodeElsewhere(name)), bytes);
                    var target =
                            d.request(
                                    "d-" + bytes,
                                    64,
                                    20,
                                    prefillAt("http://127.0.0.1:" + behind.port(), "p", name));
                    switch (d.await(d.beginDecode(target, 0))) {
                        case Completion.Completed _ -> d.assertHolds(target, 0, bytes);
                        case Completion.Failed(var failure, _) -> {
                            failed++;
                            assertThat(failure.code())
                                    .as("after %d bytes: %s", bytes, failure.message())
                                    .isIn(ErrorCode.PEER_LOST, ErrorCode.TIMEOUT);
                        }
                        case Completion.Revoked revoked ->
                                throw new AssertionError("nobody revoked it: " + revoked);
                    }
                }
            }
            assertThat(failed).as("cut before the last byte").isPositive();
            // The decoder's limit is short for a busy machine: once of several times will do.
            var limit = Deadline.in(SOON);
            for (int i = 0; !isLoaded(p, d, "after-" + i); i++) {
                assertThat(limit.passed()).as("nothing is loaded any more").isFalse();
            }
        }
    }

    private static boolean isLoaded(TestEngine p, TestEngine d, String name) {
        p.prefill(p.request("p-" + name, 64, 5, decodeElsewhere(name)), 9);
        var target = d.request("d-" + name, 64, 20, prefillAt(p.bootstrap, "p", name));
        if (d.await(d.beginDecode(target, 0)) instanceof Completion.Completed) {
            d.assertHolds(target, 0, 9);
            return true;
        }
        return false;
    }

    // Hostile decoders.

    private final Heard heard = new Heard();

    private XferResponse ask(String address, byte[] message) throws InterruptedException {
        send(address, message);
        return answer();
    }

    private XferResponse answer() throws InterruptedException {
        return heard.next(SOON);
    }

    private void send(String address, byte[] message) {
        fake.exchange(address, message, SOON, SOON, heard);
    }

    private static String sideChannel(TestEngine p) throws InterruptedException {
        try (var client = new BootstrapClient(SOON)) {
            var engine =
                    client.query(BootstrapClient.baseAddress(p.bootstrap))
                            .values()
                            .iterator()
                            .next();
            return engine.workers().values().iterator().next();
        }
    }

    private static byte[] request(
            TestEngine p, String segmentHost, int port, Map<String, RequestBlocks> blocks) {
        int n = p.cache.groups().getFirst().layers().size();
        var base = new long[n];
        var lengths = new long[n];
        var indices = new int[n];
        for (int i = 0; i < n; i++) {
            base[i] = 0x7f00_0000_0000L + i * (1L << 20);
            lengths[i] = 1024;
            indices[i] = i;
        }
        var regions =
                new WireRegions(
                        base,
                        lengths,
                        lengths,
                        p.cache.groups().getFirst().layers(),
                        indices,
                        new int[n],
                        List.of(),
                        new long[0]);
        return XferEncoder.request(
                new XferMetadata(
                        Generation.G7,
                        segmentHost,
                        port,
                        1,
                        0,
                        blocks,
                        regions,
                        1,
                        0,
                        Optional.empty()));
    }

    @Test
    void aPrefillerSurvivesWhatDecodersSend() throws Exception {
        try (var p =
                        new TestEngine(
                                Shape.SMALL, KvRole.PRODUCER, "p", Map.of("peer_layout", "alike"));
                var d = decoder(Map.of())) {
            var address = sideChannel(p);
            assertThat(ask(address, new byte[] {1, 2, 3}).errMsg()).contains("Expected `object`");
            assertThat(ask(address, request(p, "127.0.0.1", 1, Map.of())).status())
                    .isEqualTo(Status.FINISH);
            var elsewhere = new RequestBlocks("x", List.of(new int[] {1, 2}));
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var unreachable = ask(address, request(p, "127.0.0.1", 1, Map.of("a", elsewhere)));
            assertThat(unreachable.errReqs()).containsExactly("a");
            assertThat(p.await(hold))
                    .as("freed, since nobody will ask again")
                    .isInstanceOf(Completion.Failed.class);

            var held = p.prefill(p.request("p-2", 64, 15, decodeElsewhere("y")), 3);
            var tooMany = new RequestBlocks("y", List.of(new int[] {1, 2, 3, 4, 5, 6, 7}));
            assertThat(ask(address, request(p, "127.0.0.1", 1, Map.of("b", tooMany))).errMsg())
                    .contains("P num blocks less than D");
            assertThat(p.await(held)).isInstanceOf(Completion.Failed.class);

            p.prefill(p.request("p-3", 64, 25, decodeElsewhere("z")), 7);
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "z"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 7);
        }
    }

    @Test
    void aDecoderThatStopsReadingItsBytesFailsInTime() throws Exception {
        try (var deaf = ScriptedPeer.withData(2, (in, _) -> awaitEnd(in));
                var p =
                        new TestEngine(
                                Shape.SMALL,
                                KvRole.PRODUCER,
                                "p",
                                Map.of("transfer_timeout", "300ms", "peer_layout", "alike"))) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var wanted = Map.of("a", new RequestBlocks("x", List.of(new int[] {1, 2})));
            var answer = ask(sideChannel(p), request(p, "127.0.0.1", port(deaf), wanted));
            assertThat(answer.errReqs()).containsExactly("a");
            assertThat(answer.errMsg()).contains("TIMEOUT");
            assertThat(p.await(hold)).isInstanceOf(Completion.Failed.class);
        }
    }

    /// As many transfers as run at a time, all to one decoder that does not read.
    @Test
    void aDecoderThatStopsReadingItsBytesHoldsUpNobodyElse() throws Exception {
        int requests = 12;
        var reached = new CountDownLatch(1);
        try (var deaf =
                        ScriptedPeer.withData(
                                2,
                                (in, _) -> {
                                    reached.countDown();
                                    awaitEnd(in);
                                });
                var other = new Stranger(Generation.G7, 3, 8, 1024);
                var p =
                        new TestEngine(
                                Shape.SMALL,
                                KvRole.PRODUCER,
                                "p",
                                Map.of("peer_layout", "alike"))) {
            var holds = new ArrayList<TransferId>();
            var wanted = new LinkedHashMap<String, RequestBlocks>();
            for (int i = 0; i < requests; i++) {
                holds.add(p.prefill(p.request("p-" + i, 64, 5, decodeElsewhere("x" + i)), 3));
                wanted.put("a" + i, new RequestBlocks("x" + i, List.of(new int[] {1, 2})));
            }
            send(sideChannel(p), request(p, "127.0.0.1", port(deaf), wanted));
            assertThat(reached.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
            var hold = p.prefill(p.request("p-y", 64, 5, decodeElsewhere("y")), 3);
            assertThat(other.pull(p, "y", 0, 2).okReqs()).containsExactly("d-y");
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            for (var stalled : holds) {
                assertThat(p.resultNow(stalled)).isEmpty();
                p.revoke(stalled);
            }
            for (var stalled : holds) {
                p.await(stalled);
            }
        }
    }

    @Test
    void aHoldThatEndsWhileItsDecoderStallsIsGivenUpAtOnce() throws Exception {
        var reached = new CountDownLatch(1);
        try (var deaf =
                        ScriptedPeer.withData(
                                2,
                                (in, _) -> {
                                    reached.countDown();
                                    awaitEnd(in);
                                });
                var p =
                        new TestEngine(
                                Shape.SMALL,
                                KvRole.PRODUCER,
                                "p",
                                Map.of("peer_layout", "alike"))) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var wanted = Map.of("a", new RequestBlocks("x", List.of(new int[] {1, 2})));
            send(sideChannel(p), request(p, "127.0.0.1", port(deaf), wanted));
            assertThat(reached.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
            p.revoke(hold);
            assertFailed(p.await(hold), ErrorCode.CANCELLED, "given up");
            assertThat(answer().errReqs()).containsExactly("a");
        }
    }

    private static int port(ScriptedPeer peer) {
        return Integer.parseInt(peer.name().substring(peer.name().indexOf(':') + 1));
    }

    private static void awaitEnd(InputStream in) throws IOException {
        in.readNBytes(24); // the header of a WRITE, and nothing of what follows
        try {
            new CountDownLatch(1).await(SOON.toSeconds(), TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void whatWaitsForAPrefillIsLimited() throws Exception {
        try (var p =
                new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", Map.of("peer_layout", "alike"))) {
            var blocks = new LinkedHashMap<String, RequestBlocks>();
            for (int i = 0; i <= 1 << 16; i++) {
                blocks.put("r" + i, new RequestBlocks("unknown-" + i, List.of(new int[] {1})));
            }
            var answer = ask(sideChannel(p), request(p, "127.0.0.1", 1, blocks));
            assertThat(answer.status()).isEqualTo(Status.CONTINUE);
            int most = PrefillService.MAX_WAITING_OF_HOST;
            assertThat(answer.errReqs()).hasSize(blocks.size() - most).contains("r" + most);
            assertThat(answer.errMsg()).contains(most + " requests waiting already");
        }
    }

    /// It took 65,535 waiting places for ever and left as many ids unanswered.
    @Test
    void manyRequestsOnOneTransferIdAreAllAnsweredAndTakeNoPlaces() throws Exception {
        var options =
                Map.<String, Object>of("peer_layout", "alike", "abort_request_timeout", "500ms");
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options)) {
            var address = sideChannel(p);
            for (int round = 0; round < 2; round++) {
                var blocks = new LinkedHashMap<String, RequestBlocks>();
                for (int i = 0; i < 1 << 16; i++) {
                    blocks.put("r" + i, new RequestBlocks("same", List.of(new int[] {1})));
                }
                var answered = new HashSet<String>();
                var answer = ask(address, request(p, "127.0.0.1", 1, blocks));
                answered.addAll(answer.errReqs());
                assertThat(answer.errMsg()).contains("has been asked for");
                while (answer.status() == Status.CONTINUE) {
                    answer = answer();
                    answered.addAll(answer.errReqs());
                }
                assertThat(answered).hasSize(1 << 16);
            }
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("same")), 3);
            var wanted = Map.of("a", new RequestBlocks("same", List.of(new int[] {1, 2})));
            assertThat(ask(address, request(p, "127.0.0.1", 1, wanted)).errReqs())
                    .containsExactly("a");
            assertThat(p.await(hold)).as("it was tried").isNotNull();
        }
    }

    @Test
    void tenThousandRequestsForNothingAreAnsweredAndForgotten() throws Exception {
        try (var p =
                new TestEngine(
                        Shape.SMALL,
                        KvRole.PRODUCER,
                        "p",
                        Map.of("abort_request_timeout", "500ms", "peer_layout", "alike"))) {
            var address = sideChannel(p);
            var blocks = new LinkedHashMap<String, RequestBlocks>();
            for (int i = 0; i < 10_000; i++) {
                blocks.put("r" + i, new RequestBlocks("unknown-" + i, List.of(new int[] {1})));
            }
            var answer = ask(address, request(p, "127.0.0.1", 1, blocks));
            assertThat(answer.status()).isEqualTo(Status.FINISH);
            assertThat(answer.errReqs()).hasSize(10_000);
            assertThat(answer.errMsg()).isEqualTo("Timeout waiting for P side ready.");
        }
    }
}
