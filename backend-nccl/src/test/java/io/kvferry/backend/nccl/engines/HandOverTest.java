// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static io.kvferry.backend.nccl.engines.P2pEngines.SOON;
import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.AlteredP2p;
import io.kvferry.backend.nccl.TestPlane;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Map;

/// Whole engines: tokens are those of one engine alone, every loaded byte is verified, and neither
/// blocks nor staging memory stay behind.
class HandOverTest extends OverEachPlane {
    private static final long ROOM = 64 << 20;

    HandOverTest(TestPlane plane) {
        super(plane);
    }

    @ParameterizedTest
    @CsvSource({
        "PUT_ASYNC,1,1,false", "PUT_ASYNC,1,1,true", "PUT_ASYNC,2,1,false", "PUT_ASYNC,2,2,true",
        "PUT,1,1,false", "PUT,2,2,true", "GET,1,1,false", "GET,2,2,true"
    })
    @DisplayName("P10 a step ends after its pushes, in every mode")
    void handsOverInEveryMode(String mode, int tp, int groups, boolean decoderFirst)
            throws IOException {
        int pPort = freePorts(tp);
        int dPort = freePorts(tp);
        var model = Map.<String, Object>of("groups", (long) groups);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(model);
                var p = prefiller(tp, model, options(mode, pPort));
                var d = decoder(tp, model, options(mode, dPort), pool)) {
            for (int i = 0; i < 6; i++) {
                int[] prompt = prompt(i, TOKENS + i); // three steps of 64 tokens
                RequestHandle decoded;
                if (decoderFirst) {
                    decoded = decode(d, prompt, "x" + i, pPort);
                    finished(prefill(p, prompt, "x" + i, dPort));
                } else {
                    finished(prefill(p, prompt, "x" + i, dPort));
                    if (!mode.equals("GET")) {
                        assertThat(p.stats().held()).as("pushed, so nothing is held").isZero();
                        assertThat(pool.available()).isLessThan(pool.capacity());
                    }
                    decoded = decode(d, prompt, "x" + i, pPort);
                }
                var outcome = finished(decoded);
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(prompt.length - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// Both requests at once, as a router sends them that does not know where decoders listen: the
    /// decoder's pull waits at the prefiller, and the prompt is pushed into it or held for it.
    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,1", "PUT,2", "GET,1"})
    void theDecodersPullMayComeBeforeThePrompt(String mode, int tp) throws IOException {
        int pPort = freePorts(tp);
        try (var alone = alone(Map.of());
                var p = prefiller(tp, Map.of("step_time", "10ms"), options(mode, pPort));
                var d = decoder(tp, Map.of(), options(mode, 0), StagingPool.NONE)) {
            var all = new ArrayList<RequestHandle>();
            for (int i = 0; i < 12; i++) {
                all.add(decode(d, prompt(i, TOKENS), "x" + i, pPort));
                prefill(p, prompt(i, TOKENS), "x" + i, 0);
            }
            for (int i = 0; i < 12; i++) {
                var outcome = finished(all.get(i));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            if (mode.equals("GET")) {
                assertThat(pushes(p)).isZero();
                return;
            }
            // A pull is pushed into if it comes before the prompt's last step has begun. On a busy
            // machine that may be none of the twelve.
            var limit = Deadline.in(SOON);
            for (int i = 12; pushes(p) == 0; i++) {
                assertThat(limit.passed()).as("none of %d was pushed", i).isFalse();
                var decoded = decode(d, prompt(i, TOKENS), "x" + i, pPort);
                prefill(p, prompt(i, TOKENS), "x" + i, 0);
                finished(decoded);
            }
        }
    }

    private static long pushes(Engine p) {
        return p.stats().kvConnector().counters().getOrDefault("p2p_pushes", 0L);
    }

    /// By whatever mistake two prompts came to one transfer id: as many tokens, one of them
    /// another.
    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,false", "PUT_ASYNC,true", "GET,false", "GET,true"})
    void blocksOfAnotherPromptAreNotTaken(String mode, boolean decoderFirst) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options(mode, pPort));
                var d = decoder(1, Map.of(), options(mode, dPort), pool)) {
            int[] mistaken = prompt(1, TOKENS);
            mistaken[TOKENS / 2]++;
            int[] wanted = prompt(1, TOKENS);
            RequestHandle decoded;
            if (decoderFirst) {
                decoded = decode(d, wanted, "x", pPort);
                prefill(p, mistaken, "x", dPort);
            } else {
                finished(prefill(p, mistaken, "x", dPort));
                decoded = decode(d, wanted, "x", pPort);
            }
            var outcome = finished(decoded);
            assertThat(loaded(outcome)).isZero();
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, wanted));
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    @Test
    @DisplayName("P15 the id of vLLM's proxy says it all, and servers may add to it")
    void theIdOfVllmsProxySaysItAllAndServersMayAddToIt() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("PUT_ASYNC", pPort));
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool)) {
            var id =
                    "___prefill_addr_127.0.0.1:%d___decode_addr_127.0.0.1:%d_%032x"
                            .formatted(pPort, dPort, 77);
            int[] prompt = prompt(1, TOKENS);
            finished(
                    p.submit(
                            GenerationRequest.of(prompt, SamplingParams.greedy(1))
                                    .withExternalId("cmpl-" + id + "-0-aaaaaaaa")));
            assertThat(p.stats().held()).isZero();
            var outcome =
                    finished(
                            d.submit(
                                    GenerationRequest.of(
                                                    prompt,
                                                    SamplingParams.greedy(P2pEngines.GENERATED))
                                            .withFailurePolicy(LoadFailurePolicy.FAIL)
                                            .withExternalId("cmpl-" + id + "-0-bbbbbbbb")));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingHeld(p);
            assertNothingStaged(pool);
        }
    }

    /// The prompts of one call have one external id.
    @Test
    void eachPromptOfACallIsHandedOver() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("PUT_ASYNC", pPort));
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool)) {
            var id =
                    "___prefill_addr_127.0.0.1:%d___decode_addr_127.0.0.1:%d_%032x"
                            .formatted(pPort, dPort, 78);
            for (int i = 0; i < 2; i++) {
                finished(
                        p.submit(
                                GenerationRequest.of(prompt(i, TOKENS), SamplingParams.greedy(1))
                                        .withExternalId(id)
                                        .withPromptIndex(i)));
            }
            for (int i = 0; i < 2; i++) {
                var sampling = SamplingParams.greedy(P2pEngines.GENERATED);
                var outcome =
                        finished(
                                d.submit(
                                        GenerationRequest.of(prompt(i, TOKENS), sampling)
                                                .withFailurePolicy(LoadFailurePolicy.FAIL)
                                                .withExternalId(id)
                                                .withPromptIndex(i)));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertNothingHeld(p);
            assertNothingStaged(pool);
        }
    }

    @Test
    @DisplayName("P11 P12 what finds no room is held and fetched later")
    void whatFindsNoRoomIsHeldAndFetchedLater() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        // A transfer of 150 tokens takes 4 layers x 128 KiB; the pool has room for three of them.
        try (var pool = new BuddyStagingPool(2 << 20);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("PUT_ASYNC", pPort));
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool)) {
            int most = 8;
            for (int i = 0; i < most; i++) {
                finished(prefill(p, prompt(i, TOKENS), "x" + i, dPort));
            }
            assertThat(p.stats().held()).as("refused for lack of room").isPositive();
            for (int i = 0; i < most; i++) {
                var outcome = finished(decode(d, prompt(i, TOKENS), "x" + i, pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    @Test
    void aDecoderWithoutAStagingPoolPullsEverything() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("PUT_ASYNC", pPort));
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), StagingPool.NONE)) {
            for (int i = 0; i < 3; i++) {
                finished(prefill(p, prompt(i, TOKENS), "x" + i, dPort));
                var outcome = finished(decode(d, prompt(i, TOKENS), "x" + i, pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
    }

    /// As a composite loads that fills the gap another connector left. Both sides count blocks from
    /// the end of a prompt, so nothing can be loaded there.
    @ParameterizedTest
    @CsvSource({"GET", "PUT_ASYNC"})
    void aLoadThatEndsBeforeThePromptDoesIsFailed(String mode) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options(mode, pPort));
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER,
                                1,
                                options(mode, dPort),
                                P2pEngines.host(pool),
                                new FirstBlocksOnly())) {
            int[] prompt = prompt(1, TOKENS);
            finished(prefill(p, prompt, "x", dPort));
            var outcome = finished(decode(d, prompt, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isZero();
            assertThat(d.stats().kvConnector().counters().getOrDefault("p2p_loads_failed", 0L))
                    .isEqualTo(1);
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// Promises the first 64 tokens only.
    private static final class FirstBlocksOnly extends AlteredP2p {
        @Override
        public SchedulerConnector openScheduler(SchedulerContext context) {
            var scheduler = real.openScheduler(context);
            return (SchedulerConnector)
                    Proxy.newProxyInstance(
                            getClass().getClassLoader(),
                            new Class<?>[] {SchedulerConnector.class},
                            (_, method, arguments) -> {
                                var result = method.invoke(scheduler, arguments);
                                return result instanceof LookupResult.Hit
                                        ? LookupResult.hit(
                                                64, LoadMode.ASYNC, context.instance(), Tier.PEER)
                                        : result;
                            });
        }
    }
}
