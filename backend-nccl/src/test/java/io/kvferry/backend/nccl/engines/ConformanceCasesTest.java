// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.host;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.TestPlane;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// The cases of the specification that no other test is about. The others are named where they are:
/// P1 to P5 in `WireTest` and [HostilePeersTest], P8, P9, P14 and P23 in [LostPeersTest], P10 to
/// P12 and P15 in [HandOverTest], P11 and P12 beside another plugin in [SharedPoolTest], P21 in
/// `HostPlaneTest` and `HostPlanePeersTest`, P19 and P20 in the router's `RegistrationsTest`, P6 to
/// P8 for communicators in `NcclPlaneTest` and `NcclPlaneFailuresTest`. P22 needs two GPUs:
/// `TwoGpusTest`. B1 to B15 are in the toolkit's `BuddyAllocatorTest` and `BuddyStagingPoolTest`.
class ConformanceCasesTest extends OverEachPlane {
    private static final long ROOM = 64 << 20;

    ConformanceCasesTest(TestPlane plane) {
        super(plane);
    }

    /// Bytes of a block in all layers of the model of [P2pEngines].
    private long blockBytes(Engine p, int pPort) {
        var before = p.stats().kvConnector().counters().getOrDefault("p2p_bytes_sent", 0L);
        try (var d = decoder(1, Map.of(), options("GET", 0), StagingPool.NONE)) {
            int[] prompt = prompt(99, 16);
            finished(prefill(p, prompt, "one block", 0));
            finished(decode(d, prompt, "one block", pPort));
            assertNothingHeld(p); // it has heard that all was sent, and counted it
        }
        return p.stats().kvConnector().counters().getOrDefault("p2p_bytes_sent", 0L) - before;
    }

    @Test
    @DisplayName("P3 ranks that would have no port are refused at the start")
    void portsPastTheLastOneAreRefused() {
        assertThatThrownBy(() -> prefiller(2, Map.of(), options("GET", 65_535)).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("rank 1");
    }

    /// Unlike vLLM's send store, which keeps what was fetched until it needs the room: a hold ends
    /// with the transfer, and the engine has its blocks back.
    @Test
    @DisplayName("P13 what was pulled once, or never made, is a miss for the next one")
    void aTransferIsFetchedOnce() throws IOException {
        int pPort = freePorts(1);
        try (var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("GET", pPort));
                var d = decoder(1, Map.of(), options("GET", 0), StagingPool.NONE)) {
            int[] prompt = prompt(1, TOKENS);
            finished(prefill(p, prompt, "x", 0));
            for (int i = 0; i < 2; i++) {
                var outcome = finished(decode(d, prompt, "x", pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome) > 0).as("round %d", i).isEqualTo(i == 0);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
    }

    /// The id is the client's, and may come twice by mistake.
    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    @DisplayName("P13 of two prompts with one transfer id the first one is handed over")
    void theFirstOfTwoPromptsOfOneIdIsHandedOver(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options(mode, pPort));
                var d = decoder(1, Map.of(), options(mode, dPort), pool)) {
            int[] first = prompt(1, TOKENS);
            finished(prefill(p, first, "x", dPort));
            finished(prefill(p, prompt(2, TOKENS + 40), "x", dPort));
            var outcome = finished(decode(d, first, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, first));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingHeld(p); // long before hold_timeout
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    @DisplayName("P14 what comes after its request has ended is dropped on both sides")
    void lateDataIsDropped(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var p = prefiller(1, Map.of(), options(mode, pPort));
                var d = decoder(1, Map.of(), options(mode, dPort), pool)) {
            for (int i = 0; i < 8; i++) {
                int[] prompt = prompt(i, TOKENS);
                var handle = decode(d, prompt, "x" + i, pPort);
                if (i % 2 == 0) {
                    awaitPull(d);
                }
                handle.abort();
                assertThat(handle.await(Deadline.in(P2pEngines.SOON))).isPresent();
                finished(prefill(p, prompt, "x" + i, dPort));
            }
            assertNothingHeld(p); // long before hold_timeout
            assertNothingHeld(d);
            assertNothingStaged(pool); // long before staged_timeout
        }
    }

    /// A request that waits for its load has all its blocks.
    private static void awaitPull(Engine d) {
        var limit = Deadline.in(P2pEngines.SOON);
        while (d.stats().freeBlocks() == d.stats().totalBlocks() && !limit.passed()) {
            LockSupport.parkNanos(100_000);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "PUT"})
    @DisplayName("P16 a chunk that needs no new block is sent with the others, once")
    void aChunkWithoutNewBlocksIsSentToo(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        open(
                                KvRole.PRODUCER,
                                options(mode, pPort),
                                HostServices.NONE,
                                config -> config.stepTokens(17));
                var d = decoder(1, Map.of(), options(mode, dPort), pool)) {
            long block = blockBytes(p, pPort);
            long before = p.stats().kvConnector().counters().getOrDefault("p2p_bytes_sent", 0L);
            int[] prompt = prompt(1, 20); // chunks of 17 and 3 tokens, blocks of 16
            finished(prefill(p, prompt, "x", dPort));
            assertThat(p.stats().kvConnector().counters().getOrDefault("p2p_pushes", 0L))
                    .isEqualTo(1);
            assertThat(
                            p.stats().kvConnector().counters().getOrDefault("p2p_bytes_sent", 0L)
                                    - before)
                    .isEqualTo(2 * block);
            var outcome = finished(decode(d, prompt, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isEqualTo(20);
            assertNothingHeld(p);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    @DisplayName("P17 blocks of a prompt that was preempted between two chunks are the new ones")
    void aPreemptedPromptIsSentFromItsNewBlocks(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        open(
                                KvRole.PRODUCER,
                                options(mode, pPort),
                                HostServices.NONE,
                                config -> config.stepTokens(8).blockCount(16));
                var d = decoder(1, Map.of(), options(mode, dPort), pool)) {
            int preempted = 0;
            for (int i = 0; i < 10 && preempted == 0; i++) {
                // The first one grows while the second one is computed, for which no room is left.
                var growing =
                        p.submit(
                                GenerationRequest.of(
                                        prompt(50 + i, 100), SamplingParams.greedy(90)));
                int[] prompt = prompt(i, 150);
                var outcome = finished(prefill(p, prompt, "x" + i, dPort));
                preempted += outcome.usage().preemptions();
                finished(growing);
                var decoded = finished(decode(d, prompt, "x" + i, pPort));
                assertThat(tokens(decoded)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(decoded)).isGreaterThanOrEqualTo(149);
            }
            assertThat(preempted).as("preemptions between chunks").isPositive();
            assertNothingHeld(p);
            assertNothingStaged(pool);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "GET"})
    @DisplayName(
            "P18 a decoder that has the beginning loads the rest; one that needs more is refused")
    void blockCountsMayDiffer(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options(mode, pPort));
                var d =
                        open(
                                KvRole.CONSUMER,
                                options(mode, dPort),
                                host(pool),
                                (EngineConfig config) -> config.prefixCache(true))) {
            int[] prompt = prompt(1, TOKENS);
            finished(d.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1))));
            int[] longer = Arrays.copyOf(prompt, TOKENS + 60);
            Arrays.fill(longer, TOKENS, longer.length, 7);
            finished(prefill(p, longer, "x", dPort));
            var outcome = finished(decode(d, longer, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, longer));
            assertThat(loaded(outcome)).as("without what it had").isBetween(60, 60 + 16);

            finished(prefill(p, prompt(2, TOKENS), "y", dPort)); // fewer blocks, another prompt
            var refused = finished(decode(d, prompt(3, TOKENS + 50), "y", pPort));
            assertThat(loaded(refused)).isZero();
            assertThat(tokens(refused)).isEqualTo(tokensAlone(alone, prompt(3, TOKENS + 50)));
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,2,1", "GET,2,1", "GET,1,2"})
    @DisplayName("P18 engines of unlike tensor-parallel sizes exchange nothing, and lose no token")
    void unlikeTensorParallelSizesAreRefused(String mode, int pRanks, int dRanks)
            throws IOException {
        int pPort = freePorts(2);
        int dPort = freePorts(2);
        var pOptions = options(mode, pPort);
        pOptions.put("push_timeout", "500ms"); // of the rank that has no peer
        pOptions.put("hold_timeout", "1s"); // likewise
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(pRanks, Map.of(), pOptions);
                var d = decoder(dRanks, Map.of(), options(mode, dPort), pool)) {
            int[] prompt = prompt(1, TOKENS);
            finished(prefill(p, prompt, "x", dPort));
            var outcome = finished(decode(d, prompt, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isZero();
            var moved = d.stats().kvConnector().counters();
            assertThat(moved.getOrDefault("p2p_bytes_received", 0L)).isZero();
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }
}
