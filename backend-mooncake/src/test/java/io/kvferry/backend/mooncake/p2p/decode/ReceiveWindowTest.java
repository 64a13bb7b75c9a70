// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller.answer;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.p2p.testkit.CutLink;
import io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller;
import io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller.Asked;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.peers.PlainClient;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// What a prefiller that knows no write capabilities (any but kvferry's) can do to a decoder's
/// memory: fill the blocks of an open load, and nothing else at any time.
@SuppressWarnings("NullAway.Init")
class ReceiveWindowTest {
    private static final int FIRST = 20;
    private static final int BLOCKS = 4;

    private ScriptedPrefiller prefiller;
    private TestEngine decoder;

    @BeforeEach
    void start() throws InterruptedException {
        prefiller = new ScriptedPrefiller();
        decoder = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", Map.of("peer_layout", "alike"));
    }

    @AfterEach
    void close() {
        decoder.close();
        prefiller.close();
    }

    private TransferId load() {
        return load("d-1");
    }

    private TransferId load(String request) {
        return load(request, prefiller);
    }

    private TransferId load(String request, ScriptedPrefiller from) {
        return decoder.beginDecode(
                decoder.request(request, BLOCKS * TestEngine.BLOCK_TOKENS, FIRST, from.params("x")),
                0);
    }

    private Asked request() throws InterruptedException {
        return prefiller.request();
    }

    /// Writes, and returns whether all of it arrived.
    private boolean write(
            int version, XferMetadata to, int layer, int block, int offset, int bytes) {
        var target =
                decoder.regions
                        .getFirst()
                        .get(layer)
                        .segment()
                        .asSlice(block * 1024L + offset, bytes);
        target.fill((byte) 0);
        var sent = new byte[bytes];
        Arrays.fill(sent, (byte) 0x55);
        new PlainClient(to.segmentName(), version)
                .write(to.regions().baseAddresses()[layer] + block * 1024L + offset, sent);
        if (target.mismatch(MemorySegment.ofArray(sent)) < 0) {
            return true;
        }
        assertThat(target.mismatch(MemorySegment.ofArray(new byte[bytes])))
                .as("half of it arrived")
                .isEqualTo(-1);
        return false;
    }

    @ParameterizedTest
    @CsvSource({
        "1, revoked",
        "2, revoked",
        "1, garbage",
        "2, garbage",
        "1, lost",
        "2, lost",
        "1, refused",
        "2, refused"
    })
    void nothingLandsOnceTheLoadHasEnded(int version, String end) throws Exception {
        var load = load();
        var asked = request();
        assertThat(write(version, asked.message(), 0, FIRST, 0, 1024)).as("while open").isTrue();
        switch (end) {
            case "revoked" -> {
                decoder.revoke(load); // the prefiller never answers, as one that hangs
                assertThat(decoder.await(load)).isInstanceOf(Completion.Revoked.class);
            }
            case "garbage" -> {
                asked.asker().answer("garbage".getBytes(UTF_8));
                assertThat(decoder.await(load)).isInstanceOf(Completion.Failed.class);
            }
            case "lost" -> {
                prefiller.hangUp();
                assertThat(decoder.await(load)).isInstanceOf(Completion.Failed.class);
            }
            default -> {
                answer(asked, List.of(), List.of("d-1"));
                assertThat(decoder.await(load)).isInstanceOf(Completion.Failed.class);
            }
        }
        for (int layer = 0; layer < 3; layer++) {
            for (int block = FIRST; block < FIRST + BLOCKS; block++) {
                assertThat(write(version, asked.message(), layer, block, 0, 1024)).isFalse();
            }
        }
        decoder.step();
        assertThat(decoder.stats.counters())
                .as("what nobody else may hear of")
                .containsEntry("mooncake_num_refused_writes", 3L * BLOCKS);
    }

    /// The window of the second load would let in what is still written under the first: other
    /// bytes.
    @Test
    void aLoadWaitsUntilNobodyWritesItsBlocksUnderAnEarlierOne() throws Exception {
        var first = load("d-1");
        var asked = request();
        assertThat(write(2, asked.message(), 0, FIRST, 0, 1024)).as("shows its version").isTrue();
        decoder.revoke(first);
        assertThat(decoder.await(first)).isInstanceOf(Completion.Revoked.class);

        var second = load("d-2");
        assertThat(prefiller.requestWithin(300)).as("asked at once").isEmpty();
        assertThat(write(2, asked.message(), 0, FIRST, 0, 1024)).as("of the first").isFalse();
        answer(asked, List.of("d-1"), List.of());
        var next = request();
        assertThat(next.message().reqBlocks()).containsOnlyKeys("d-2");
        assertThat(write(2, next.message(), 0, FIRST, 0, 1024)).isTrue();
        answer(next, List.of("d-2"), List.of());
        assertThat(decoder.await(second)).isInstanceOf(Completion.Completed.class);
    }

    @Test
    void aLoadOverBlocksThatASilentPrefillerMayStillWriteIsRefused() throws Exception {
        var first = load("d-1");
        request();
        decoder.revoke(first);
        assertThat(decoder.await(first)).isInstanceOf(Completion.Revoked.class);

        assertThat(decoder.await(load("d-2")))
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed ->
                                assertThat(failed.failure().code())
                                        .isEqualTo(ErrorCode.BACKPRESSURE));
        assertThat(request().message().reqBlocks())
                .as("frees the prefiller")
                .hasEntrySatisfying("d-2", blocks -> assertThat(blocks.releaseOnly()).isTrue());
    }

    @Test
    void aPrefillerWithoutARequiredCapabilityIsReleased() throws Exception {
        decoder.close();
        decoder =
                new TestEngine(
                        Shape.SMALL,
                        KvRole.CONSUMER,
                        "d",
                        Map.of("peer_layout", "alike", "require_capability", true));
        assertThat(decoder.await(load()))
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed ->
                                assertThat(failed.failure().code())
                                        .isEqualTo(ErrorCode.INCOMPATIBLE));
        assertThat(request().message().reqBlocks())
                .hasEntrySatisfying("d-1", blocks -> assertThat(blocks.releaseOnly()).isTrue());
        assertThat(prefiller.requestWithin(300)).as("asked once").isEmpty();
    }

    /// The blocks may be loaded again at once: by then the prefiller's own limits are over too.
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void nothingLandsOnceTheAnswerIsOverdue(int version) throws Exception {
        decoder.close();
        decoder =
                new TestEngine(
                        Shape.SMALL,
                        KvRole.CONSUMER,
                        "d",
                        Map.of(
                                "peer_layout",
                                "alike",
                                "abort_request_timeout",
                                "200ms",
                                "transfer_timeout",
                                "200ms"));
        var load = load();
        var asked = request();
        assertThat(decoder.await(load))
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(ErrorCode.TIMEOUT));
        for (int layer = 0; layer < 3; layer++) {
            assertThat(write(version, asked.message(), layer, FIRST, 0, BLOCKS * 1024)).isFalse();
        }
        decoder.step();
        assertThat(decoder.stats.counters()).containsEntry("mooncake_num_refused_writes", 3L);

        var second = load("d-2");
        assertThat(request().message().reqBlocks())
                .as("not for a release, after waiting")
                .hasEntrySatisfying("d-2", blocks -> assertThat(blocks.releaseOnly()).isFalse());
        decoder.revoke(second);
        decoder.await(second);
        assertThat(write(version, asked.message(), 0, FIRST, 0, 1024)).isFalse();
    }

    /// A prefiller that takes the connection and goes no further.
    @Test
    void aRequestThatWasNeverSentExposesNothing() throws Exception {
        var links = new ArrayList<CutLink>();
        try (var unreached =
                new ScriptedPrefiller(address -> {
                    var link = heldLink(address);
                    links.add(link);
                    return "tcp://127.0.0.1:" + link.port();
                })) {
            var first = load("d-1", unreached);
            var begun = links.getFirst().carried(); // the connection stands, so the load is open
            assertThat(begun.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
            decoder.revoke(first);
            assertThat(decoder.await(first)).isInstanceOf(Completion.Revoked.class);

            var second = load("d-2");
            var next = request();
            assertThat(next.message().reqBlocks())
                    .as("not for a release, after waiting")
                    .hasEntrySatisfying(
                            "d-2", blocks -> assertThat(blocks.releaseOnly()).isFalse());
            assertThat(write(2, next.message(), 0, FIRST, 0, 1024)).isTrue();
            answer(next, List.of("d-2"), List.of());
            assertThat(decoder.await(second)).isInstanceOf(Completion.Completed.class);

            links.getFirst().release();
            assertThat(unreached.request().message().reqBlocks())
                    .as("still frees the prefiller, and names no blocks")
                    .hasEntrySatisfying("d-1", blocks -> assertThat(blocks.releaseOnly()).isTrue());
        } finally {
            for (var link : links) {
                link.close();
            }
        }
    }

    /// A request may wait long for its turn, and the prefiller's limits begin when it hears of it.
    @Test
    void howLongARequestExposesBlocksCountsFromWhenItLeaves() throws Exception {
        decoder.close();
        var limit = Duration.ofMillis(400);
        decoder =
                new TestEngine(
                        Shape.SMALL,
                        KvRole.CONSUMER,
                        "d",
                        Map.of(
                                "peer_layout",
                                "alike",
                                "abort_request_timeout",
                                "400ms",
                                "transfer_timeout",
                                "400ms"));
        var links = new ArrayList<CutLink>();
        try (var unreached =
                new ScriptedPrefiller(address -> {
                    var link = heldLink(address);
                    links.add(link);
                    return "tcp://127.0.0.1:" + link.port();
                })) {
            int tokens = BLOCKS * TestEngine.BLOCK_TOKENS;
            var revoked =
                    decoder.admitDecode(
                            decoder.request("d-1", tokens, FIRST, unreached.params("x")), 0);
            decoder.admitDecode( // keeps the request of both from being withdrawn
                    decoder.request("d-2", tokens, FIRST + BLOCKS, unreached.params("y")), 0);
            decoder.step();
            var begun = links.getFirst().carried();
            assertThat(begun.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
            decoder.revoke(revoked);
            assertThat(decoder.await(revoked)).isInstanceOf(Completion.Revoked.class);
            Thread.sleep(limit.multipliedBy(5).dividedBy(2)); // longer than both limits together

            long before = System.nanoTime();
            links.getFirst().release();
            assertThat(unreached.request().message().reqBlocks()).containsKeys("d-1", "d-2");
            load("d-3");
            assertThat(request().message().reqBlocks()).containsOnlyKeys("d-3");
            assertThat(Duration.ofNanos(System.nanoTime() - before))
                    .as("the first prefiller may write all that time")
                    .isGreaterThanOrEqualTo(limit.multipliedBy(2));
        } finally {
            for (var link : links) {
                link.close();
            }
        }
    }

    private static CutLink heldLink(String address) {
        try {
            var link =
                    new CutLink(
                            URI.create(address).getPort(), Long.MAX_VALUE, Long.MAX_VALUE, false);
            link.hold();
            return link;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @ParameterizedTest
    @CsvSource({"1", "2"})
    void onlyTheBlocksOfTheLoadCanBeWritten(int version) throws Exception {
        var load = load();
        var asked = request();
        var message = asked.message();
        assertThat(write(version, message, 0, FIRST - 1, 0, 1024)).isFalse();
        assertThat(write(version, message, 1, FIRST + BLOCKS, 0, 1024)).isFalse();
        assertThat(write(version, message, 2, FIRST - 1, 1023, 2)).isFalse();
        assertThat(write(version, message, 2, 0, 0, 16)).isFalse();
        for (int layer = 0; layer < 3; layer++) {
            assertThat(write(version, message, layer, FIRST, 0, BLOCKS * 1024)).isTrue();
        }
        answer(asked, List.of("d-1"), List.of());
        assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
        assertThat(write(version, message, 0, FIRST - 1, 0, 1024)).isFalse();
    }

    @Test
    void nobodyReadsTheCache() throws Exception {
        load();
        var message = request().message();
        var answer =
                new PlainClient(message.segmentName(), 2)
                        .read(message.regions().baseAddresses()[0] + FIRST * 1024L, 64);
        assertThat(answer).as("a receipt that says no, and no bytes").hasSize(8).startsWith(1);
    }
}
