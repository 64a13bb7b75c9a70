// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlanner;
import io.kvferry.backend.mooncake.p2p.copy.ReadOffer;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.testkit.BackendHosts;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.ReadReport;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.memory.MemoryBackendProvider;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// How a prefiller's service treats decoders that ask for more than it can take in, and those that
/// ask for one transfer together.
class PrefillServiceTest {
    private static final byte[] GARBAGE = {(byte) 0xC1};

    /// A decoder that keeps what it is told.
    private static final class Decoder implements SideChannel.Asker {
        private final String host;
        private final BlockingQueue<XferResponse> told = new LinkedBlockingQueue<>();

        Decoder(String host) {
            this.host = host;
        }

        @Override
        public boolean answer(byte[] message) {
            return told.add(XferDecoder.response(message));
        }

        @Override
        public String host() {
            return host;
        }
    }

    private static KvCacheGroup group() {
        return new KvCacheGroup(
                0,
                KvCacheGroup.Kind.FULL_ATTENTION,
                new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                List.of("layer"),
                16,
                128);
    }

    private static PrefillService service(
            SideChannel channel, DataPlane plane, List<KvRegion> regions, Outbox outbox) {
        return new PrefillService(
                "prefill",
                channel,
                plane,
                new CopyPlanner(
                        regions,
                        new KvCacheSpec(List.of(group()), 4),
                        new RankInfo(0, 1, 0, 1, 0, 1),
                        "LBHNC",
                        false),
                "",
                MooncakeSettings.from(MooncakeSettings.SCHEMA.read("test", Map.of())),
                outbox);
    }

    /// @param port of the decoder's transfer engine
    private static byte[] message(
            String name, RequestBlocks wanted, int port, PeerExtension extension) {
        return XferEncoder.request(
                new XferMetadata(
                        Generation.G7,
                        "127.0.0.1",
                        port,
                        1,
                        0,
                        Map.of(name, wanted),
                        new WireRegions(
                                new long[] {1 << 20},
                                new long[] {128},
                                new long[] {128},
                                List.of("layer"),
                                new int[] {0},
                                new int[] {0},
                                List.of(new int[] {0}),
                                new long[] {-1}),
                        1,
                        0,
                        Optional.of(extension)));
    }

    /// One region of four blocks.
    private static List<KvRegion> regions(Arena arena) {
        return List.of(
                new KvRegion(
                        "layer", 0, 0, new MemoryRange.Host(arena.allocate(512, 64)), 4, 128, 128));
    }

    /// A prefiller whose blocks are read by a backend of the host.
    private static final class Offering implements AutoCloseable {
        final Outbox outbox = new Outbox(0, () -> {});
        final TransferId hold = TransferId.save("p", 0);
        private final Arena arena = Arena.ofShared();
        private final SideChannel channel = new SideChannel("channel");
        private final HostBackends backends =
                HostBackends.open(
                        BackendHosts.of(new MemoryBackendProvider(), backend -> backend),
                        List.of(new Choice("MEMORY", Map.of())),
                        new PeerId("p", 1),
                        "127.0.0.1");
        final PrefillService service = service(channel, backends, regions(arena), outbox);

        void ready() {
            service.ready(new MooncakePlan.Send(hold, "x", List.of(new int[] {0})));
        }

        /// @param ids blocks that are asked for, none for the release of the prefiller's
        void asks(SideChannel.Asker decoder, int... ids) {
            asks(decoder, 60_000, ids);
        }

        /// @param millis for which the decoder waits
        void asks(SideChannel.Asker decoder, long millis, int[] ids) {
            var name = "r-" + decoder.host();
            var wanted =
                    ids.length == 0
                            ? RequestBlocks.release("x")
                            : new RequestBlocks("x", List.of(ids));
            service.onRequest(
                    decoder,
                    message(
                            name,
                            wanted,
                            1,
                            new PeerExtension(
                                    "",
                                    "LBHNC",
                                    "",
                                    millis,
                                    Map.of(),
                                    "reader-" + decoder.host())));
        }

        List<Completion.Result> ended() throws InterruptedException {
            for (int i = 0; i < 3000; i++) {
                var found = outbox.report(0, Payload.EMPTY).completions();
                if (!found.isEmpty()) {
                    return found.stream().map(Completion::result).toList();
                }
                TimeUnit.MILLISECONDS.sleep(10);
            }
            return List.of();
        }

        @Override
        public void close() {
            service.close();
            channel.close();
            backends.close();
            arena.close();
        }
    }

    private static XferResponse next(Decoder decoder) throws InterruptedException {
        var answer = decoder.told.poll(30, TimeUnit.SECONDS);
        assertThat(answer).as("an answer to %s", decoder.host()).isNotNull();
        return answer;
    }

    /// A router gave a transfer to a second decoder when the first had let go of it; both wait.
    @Test
    void aHoldDoesNotEndWhileOneOfThoseThatWaitedForItIsServed() throws Exception {
        try (var p = new Offering()) {
            var gone = new Decoder("gone");
            var reads = new Decoder("reads");
            p.asks(gone);
            p.asks(reads, 1);
            p.ready();
            assertThat(next(gone).status()).isEqualTo(XferResponse.Status.FINISH);
            var offer = next(reads).offers().values().iterator().next();
            assertThat(p.outbox.report(0, Payload.EMPTY).completions())
                    .as("while the blocks are read")
                    .isEmpty();
            p.service.onRequest(
                    reads, new ReadReport(ReadOffer.decode(offer).ticket(), "").encode());
            assertThat(p.ended()).singleElement().isInstanceOf(Completion.Completed.class);
        }
    }

    /// It computes the prompt itself, and asks no more.
    @Test
    void nothingIsHeldForADecoderThatWasToldThatItHasWaitedTooLong() throws Exception {
        for (boolean expected : new boolean[] {true, false}) {
            try (var p = new Offering()) {
                if (expected) {
                    p.service.expect("x");
                }
                var late = new Decoder("late");
                p.asks(late, 50, new int[] {1});
                assertThat(next(late).errReqs()).containsExactly("r-late");
                p.ready();
                assertThat(p.ended()).singleElement().isInstanceOf(Completion.Failed.class);
            }
        }
    }

    @Test
    void aDecoderThatAsksAgainAfterItHasWaitedTooLongIsServed() throws Exception {
        try (var p = new Offering()) {
            var decoder = new Decoder("d");
            p.asks(decoder, 50, new int[] {1});
            assertThat(next(decoder).errReqs()).containsExactly("r-d");
            p.asks(decoder, 1);
            p.ready();
            var offer = next(decoder).offers().values().iterator().next();
            p.service.onRequest(
                    decoder, new ReadReport(ReadOffer.decode(offer).ticket(), "").encode());
            assertThat(p.ended()).singleElement().isInstanceOf(Completion.Completed.class);
        }
    }

    /// Two names of one host lead there, and the decoder takes them for two workers.
    @Test
    void aDecoderThatMeansAnotherWorkerIsRefused() throws Exception {
        try (var p = new Offering()) {
            p.ready();
            for (var worker : List.of("1/0", "0/1")) {
                var astray = new Decoder("astray");
                p.service.onRequest(
                        astray,
                        message(
                                "r",
                                new RequestBlocks("x", List.of(new int[] {1})),
                                1,
                                new PeerExtension(
                                        "", "LBHNC", "", 60_000, Map.of(), "reader", worker)));
                assertThat(next(astray).errMsg()).contains("asks for worker " + worker);
            }
            var right = new Decoder("right");
            p.service.onRequest(
                    right,
                    message(
                            "r",
                            new RequestBlocks("x", List.of(new int[] {1})),
                            1,
                            new PeerExtension("", "LBHNC", "", 60_000, Map.of(), "reader", "0/0")));
            assertThat(next(right).offers()).hasSize(1);
        }
    }

    /// Each leaves a note behind.
    @Test
    void thoseWhoAskForATransferAndGoAreCountedToo() throws Exception {
        try (var p = new Offering()) {
            for (int i = 0; i <= PrefillSlot.MOST_ASKS; i++) {
                var gone = new Decoder("gone-" + i);
                p.asks(gone, 1);
                p.service.onGone(gone);
            }
            var last = new Decoder("last");
            p.asks(last, 1);
            var answer = next(last);
            assertThat(answer.errReqs()).containsExactly("r-last");
            assertThat(answer.errMsg()).contains("has been asked for 1024 times");
        }
    }

    /// Clients choose the ids, and thousands of them are kept.
    @Test
    void theEndOfATransferIsKeptUnlessItsIdIsVeryLong() throws Exception {
        try (var p = new Offering()) {
            for (int length : new int[] {1024, 1025}) {
                var transfer = "t".repeat(length);
                p.service.withdraw(new MooncakePlan.Withdrawal(transfer, "no KV"));
                var decoder = new Decoder("d");
                p.service.onRequest(
                        decoder,
                        message(
                                "r",
                                new RequestBlocks(transfer, List.of(new int[] {1})),
                                1,
                                new PeerExtension("", "LBHNC", "", 50, Map.of(), "reader")));
                assertThat(next(decoder).errMsg())
                        .contains(length == 1024 ? "no KV" : "Timeout waiting");
            }
        }
    }

    /// A decoder to which answers cannot be sent, for lack of memory, say.
    private static final class Unreachable implements SideChannel.Asker {
        private final String host;
        private final List<String> tried = new ArrayList<>();

        Unreachable(String host) {
            this.host = host;
        }

        @Override
        public boolean answer(byte[] message) {
            tried.add("answer");
            throw new OutOfMemoryError("thrown by the test");
        }

        @Override
        public String host() {
            return host;
        }
    }

    /// All of them wait when the prompt is computed, and the first answers cannot be sent.
    @Test
    void aHoldEndsAlthoughItsDecodersCannotBeAnswered() throws Exception {
        try (var p = new Offering()) {
            var first = new Unreachable("first");
            var second = new Unreachable("second");
            var last = new Decoder("last");
            p.asks(first);
            p.asks(second);
            p.asks(last);
            p.ready();
            assertThat(next(last).status()).isEqualTo(XferResponse.Status.FINISH);
            assertThat(p.ended()).singleElement().isInstanceOf(Completion.Completed.class);
            assertThat(first.tried).isNotEmpty();
            assertThat(second.tried).isNotEmpty();
        }
    }

    @Test
    void aRevokedHoldEndsAlthoughItsDecodersCannotBeAnswered() throws Exception {
        try (var p = new Offering()) {
            var first = new Unreachable("first");
            var reads = new Decoder("reads");
            p.asks(first);
            p.asks(reads, 1);
            p.ready();
            assertThat(next(reads).offers()).hasSize(1);
            p.service.revoke(p.hold);
            assertThat(next(reads).errReqs()).containsExactly("r-reads");
            assertThat(p.ended()).singleElement().isInstanceOf(Completion.Failed.class);
        }
    }

    /// More want the blocks than are served at a time, and one of those that wait cannot be told
    /// that the hold has ended.
    @Test
    void aRevokedHoldEndsAlthoughOneThatWaitsForItsTurnCannotBeAnswered() throws Exception {
        var settings = MooncakeSettings.from(MooncakeSettings.SCHEMA.read("test", Map.of()));
        try (var p = new Offering()) {
            p.ready();
            var served = new ArrayList<Decoder>();
            for (int i = 0; i < settings.numWorkers(); i++) {
                served.add(new Decoder("served-" + i));
                p.asks(served.getLast(), 1);
                assertThat(next(served.getLast()).offers()).hasSize(1);
            }
            var last = new Decoder("last");
            p.asks(new Unreachable("first"), 1);
            p.asks(last, 1);
            p.service.revoke(p.hold);
            assertThat(next(last).errReqs()).containsExactly("r-last");
            for (var decoder : served) {
                assertThat(next(decoder).errReqs()).containsExactly("r-" + decoder.host());
            }
            assertThat(p.ended()).hasSize(1);
        }
    }

    /// A request that fails before it is accepted is not written: its decoder may reuse the blocks
    /// once it has the failure.
    @Test
    void aDecoderIsNotToldThatItsRequestHasFailedWhileItIsServed() throws Exception {
        try (var p = new Offering()) {
            p.ready();
            var told = new LinkedBlockingQueue<XferResponse>();
            var unlisted =
                    new SideChannel.Asker() {
                        @Override
                        public boolean answer(byte[] message) {
                            return told.add(XferDecoder.response(message));
                        }

                        @Override
                        public String host() {
                            return "unlisted";
                        }

                        @Override
                        public int hashCode() {
                            throw new OutOfMemoryError("thrown by the test");
                        }

                        @Override
                        public boolean equals(Object other) {
                            return this == other;
                        }
                    };
            p.asks(unlisted, 1);
            var other = new Decoder("other");
            p.asks(other, 1);
            var offer = next(other).offers().values().iterator().next();
            assertThat(told)
                    .singleElement()
                    .satisfies(answer -> {
                        assertThat(answer.errReqs()).containsExactly("r-unlisted");
                        assertThat(answer.offers()).isEmpty();
                    });
            p.service.onRequest(
                    other, new ReadReport(ReadOffer.decode(offer).ticket(), "").encode());
            assertThat(p.ended()).singleElement().isInstanceOf(Completion.Completed.class);
        }
    }

    /// The last transfer of a revoked hold ends as usual: decoders that asked meanwhile must not
    /// wait for the next one.
    @Test
    void whoAsksForARevokedHoldWhileItIsServedIsAnswered() throws Exception {
        var busy = new CountDownLatch(1);
        var released = new CountDownLatch(1);
        try (var p = new Offering()) {
            var first = new Decoder("first");
            var late = new Decoder("late");
            p.ready();
            p.asks(first, 1);
            assertThat(next(first).offers()).hasSize(1);
            p.service.onRequest(slow(busy, released), GARBAGE);
            assertThat(busy.await(30, TimeUnit.SECONDS)).isTrue();
            p.service.revoke(p.hold);
            p.asks(late, 1); // before the end of the offer, which the revocation posts
            released.countDown();
            assertThat(next(first).errReqs()).containsExactly("r-first");
            assertThat(next(late).errReqs()).containsExactly("r-late");
        } finally {
            released.countDown();
        }
    }

    /// An asker that keeps the loop busy.
    private static SideChannel.Asker slow(CountDownLatch busy, CountDownLatch released) {
        return new SideChannel.Asker() {
            @Override
            public boolean answer(byte[] message) {
                busy.countDown();
                try {
                    return released.await(60, TimeUnit.SECONDS);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    return false;
                }
            }

            @Override
            public String host() {
                return "slow";
            }
        };
    }

    @Test
    void aHostThatAsksWithoutEndLeavesRoomForOthersAndHearsOfEachMessage() throws Exception {
        var busy = new CountDownLatch(1);
        var released = new CountDownLatch(1);
        var slow = slow(busy, released);
        try (var channel = new SideChannel("channel");
                var engine =
                        JavaTransferEngine.start(
                                EngineConfig.from(Map.of("shared-memory", "false")));
                var service =
                        service(
                                channel,
                                new OwnEngine(engine, false),
                                List.of(),
                                new Outbox(0, () -> {}))) {
            service.onRequest(slow, GARBAGE);
            assertThat(busy.await(60, TimeUnit.SECONDS)).isTrue();

            var greedy = new ArrayList<Decoder>();
            do {
                greedy.add(new Decoder("greedy"));
                service.onRequest(greedy.getLast(), GARBAGE);
            } while (greedy.getLast().told.isEmpty() && greedy.size() < 1 << 16);
            assertThat(greedy.getLast().told.element().errMsg()).contains("overloaded");

            var other = new Decoder("other");
            service.onRequest(other, GARBAGE);
            assertThat(other.told).as("refused at once").isEmpty();

            released.countDown();
            for (var decoder : greedy) {
                var answer = decoder.told.poll(60, TimeUnit.SECONDS);
                assertThat(answer).isNotNull();
                assertThat(answer.status()).isEqualTo(XferResponse.Status.ERROR);
                assertThat(decoder.told).as("answered twice").isEmpty();
            }
            var answer = other.told.poll(60, TimeUnit.SECONDS);
            assertThat(answer).isNotNull();
            assertThat(answer.errMsg()).doesNotContain("overloaded");
        }
    }

    /// The transfer engine of a prefiller, which says whom it looks up.
    ///
    /// @param answered each lookup waits for it, then fails
    private static TransferEngine engine(BlockingQueue<String> opened, CountDownLatch answered) {
        return (TransferEngine)
                Proxy.newProxyInstance(
                        TransferEngine.class.getClassLoader(),
                        new Class<?>[] {TransferEngine.class},
                        (_, method, arguments) ->
                                switch (method.getName()) {
                                    case "info" ->
                                            new EngineInfo(
                                                    "p", "127.0.0.1", 1, "java", "tcp", "1", true);
                                    case "open" -> {
                                        opened.add((String) arguments[0]);
                                        answered.await();
                                        throw new KvFerryException(
                                                ErrorCode.PEER_LOST, "nobody is there");
                                    }
                                    case "close" -> null;
                                    default -> throw new AssertionError(method);
                                });
    }

    /// A message may name any address as its decoder's.
    @Test
    void aDecoderIsLookedUpWhileItsPromptIsComputedAndNobodyElseIs() throws Exception {
        var opened = new LinkedBlockingQueue<String>();
        try (var channel = new SideChannel("channel");
                var arena = Arena.ofShared();
                var service =
                        service(
                                channel,
                                new OwnEngine(engine(opened, new CountDownLatch(0)), false),
                                regions(arena),
                                new Outbox(0, () -> {}))) {
            service.expect("computed");
            asks(service, "a", "computed", 11, "1");
            assertThat(opened.poll(30, TimeUnit.SECONDS)).isEqualTo("127.0.0.1:11");

            asks(service, "b", "unheard of", 12, "1");
            asks(service, "c", "computed", 11, "1"); // known
            asks(service, "d", "computed", 13, ""); // not a kvferry peer
            asks(service, "e", "computed", 11, "2"); // started anew
            assertThat(opened.poll(30, TimeUnit.SECONDS)).isEqualTo("127.0.0.1:11");

            service.expect("unheard of");
            assertThat(opened.poll(30, TimeUnit.SECONDS)).isEqualTo("127.0.0.1:12");
            assertThat(opened).isEmpty();
        }
    }

    @Test
    void aFloodOfDecodersTakesABoundedNumberOfLookups() throws Exception {
        int most = 16;
        var opened = new LinkedBlockingQueue<String>();
        var answered = new CountDownLatch(1);
        try (var channel = new SideChannel("channel");
                var arena = Arena.ofShared();
                var service =
                        service(
                                channel,
                                new OwnEngine(engine(opened, answered), false),
                                regions(arena),
                                new Outbox(0, () -> {}))) {
            service.expect("computed");
            for (int port = 1; port <= 2 * most; port++) {
                asks(service, "r" + port, "computed", port, "1");
            }
            var last = new Decoder("last");
            service.onRequest(last, GARBAGE);
            next(last); // the loop has seen them all
            for (int i = 0; i < most; i++) {
                assertThat(opened.poll(30, TimeUnit.SECONDS)).isNotNull();
            }
            assertThat(opened).isEmpty();

            answered.countDown();
            var limit = Deadline.in(Duration.ofSeconds(30));
            while (opened.isEmpty()) {
                assertThat(limit.passed()).as("no lookup after the others").isFalse();
                asks(service, "later", "computed", 2 * most + 1, "1");
                TimeUnit.MILLISECONDS.sleep(10);
            }
            assertThat(opened).contains("127.0.0.1:33");
        } finally {
            answered.countDown();
        }
    }

    private static void asks(
            PrefillService service, String name, String transfer, int port, String incarnation) {
        service.onRequest(
                new Decoder(name),
                message(
                        name,
                        new RequestBlocks(transfer, List.of(new int[] {1})),
                        port,
                        new PeerExtension("", "LBHNC", incarnation, 60_000, Map.of(), "")));
    }
}
