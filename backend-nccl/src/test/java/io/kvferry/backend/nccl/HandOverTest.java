// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.P2pEngines.alone;
import static io.kvferry.backend.nccl.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.P2pEngines.decode;
import static io.kvferry.backend.nccl.P2pEngines.decoder;
import static io.kvferry.backend.nccl.P2pEngines.finished;
import static io.kvferry.backend.nccl.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.P2pEngines.loaded;
import static io.kvferry.backend.nccl.P2pEngines.options;
import static io.kvferry.backend.nccl.P2pEngines.prefill;
import static io.kvferry.backend.nccl.P2pEngines.prefiller;
import static io.kvferry.backend.nccl.P2pEngines.prompt;
import static io.kvferry.backend.nccl.P2pEngines.tokens;
import static io.kvferry.backend.nccl.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
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
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Whole engines: tokens are those of one engine alone, every loaded byte is verified, and neither
/// blocks nor staging memory stay behind.
class HandOverTest {
    private static final long ROOM = 64 << 20;

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
            var decoded = new ArrayList<RequestHandle>();
            for (int i = 0; i < 12; i++) {
                decoded.add(decode(d, prompt(i, TOKENS), "x" + i, pPort));
                prefill(p, prompt(i, TOKENS), "x" + i, 0);
            }
            for (int i = 0; i < 12; i++) {
                var outcome = finished(decoded.get(i));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            long pushes = p.stats().kvConnector().counters().getOrDefault("p2p_pushes", 0L);
            if (mode.equals("GET")) {
                assertThat(pushes).isZero();
            } else {
                assertThat(pushes).as("of 12: three steps of 10 ms each").isPositive();
            }
        }
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

    @Test
    @DisplayName("P14 P23 what nobody asks for expires on both sides")
    void whatNobodyAsksForExpiresOnBothSides() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("hold_timeout", "300ms");
        var dOptions = options("PUT_ASYNC", dPort);
        dOptions.put("staged_timeout", "300ms");
        dOptions.put("receive_timeout", "300ms");
        dOptions.put("transfer_timeout", "1s");
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), dOptions, pool)) {
            finished(prefill(p, prompt(1, TOKENS), "pushed, not asked for", dPort));
            finished(prefill(p, prompt(2, TOKENS), "held, not asked for", 0));
            assertNothingHeld(p);
            assertNothingStaged(pool);
            for (var transfer :
                    new String[] {"pushed, not asked for", "held, not asked for", "never made"}) {
                var outcome = finished(decode(d, prompt(1, TOKENS), transfer, pPort));
                assertThat(loaded(outcome)).as(transfer).isZero();
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(1, TOKENS)));
            }
            assertNothingHeld(d);
        }
    }

    /// Either side at a random moment between submission and end.
    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,true,false", "PUT_ASYNC,false,true", "PUT,true,true", "GET,true,true"})
    void abortsAtAnyPointLeaveNothingBehind(String mode, boolean atPrefiller, boolean atDecoder)
            throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var model = Map.<String, Object>of("step_time", "1ms");
        var pOptions = options(mode, pPort);
        pOptions.put("hold_timeout", "3s");
        var dOptions = options(mode, dPort);
        dOptions.put("receive_timeout", "3s");
        dOptions.put("staged_timeout", "3s");
        long seed = System.nanoTime();
        var random = new Random(seed);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(model);
                var p = prefiller(1, model, pOptions);
                var d = decoder(1, model, dOptions, pool)) {
            for (int i = 0; i < 30; i++) {
                boolean prefillFirst = random.nextBoolean();
                var name = "x" + i;
                var first = submit(prefillFirst, p, d, pPort, dPort, i, name);
                pause(random, 4_000);
                var second = submit(!prefillFirst, p, d, pPort, dPort, i, name);
                pause(random, 12_000);
                if (atPrefiller) {
                    (prefillFirst ? first : second).abort();
                }
                if (atDecoder) {
                    (prefillFirst ? second : first).abort();
                }
            }
            // An aborted side must not make the other one wait: what follows is served.
            finished(prefill(p, prompt(99, TOKENS), "after", dPort));
            assertThat(tokens(finished(decode(d, prompt(99, TOKENS), "after", pPort))))
                    .as("seed %d", seed)
                    .isEqualTo(tokensAlone(alone, prompt(99, TOKENS)));
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    private static RequestHandle submit(
            boolean toPrefiller, Engine p, Engine d, int pPort, int dPort, int seed, String name) {
        return toPrefiller
                ? prefill(p, prompt(seed, TOKENS), name, dPort)
                : decode(d, prompt(seed, TOKENS), name, pPort);
    }

    private static void pause(Random random, int mostMicros) {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(random.nextInt(mostMicros)));
    }

    @Test
    @DisplayName("P9 either engine may start anew at the same address")
    void eitherEngineMayStartAnewAtTheSameAddress() throws IOException {
        int pPort = freePorts(2);
        int dPort = freePorts(2);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of())) {
            var p = prefiller(2, Map.of(), options("PUT_ASYNC", pPort));
            var d = decoder(2, Map.of(), options("PUT_ASYNC", dPort), pool);
            try {
                for (int i = 0; i < 6; i++) {
                    int[] prompt = prompt(i, TOKENS);
                    var lost = finished(prefill(p, prompt, "lost" + i, dPort)).kvParams();
                    if (i % 2 == 0) {
                        finished(prefill(p, prompt, "held" + i, 0));
                        var held =
                                finished(prefill(p, prompt(i + 50, TOKENS), "gone" + i, 0))
                                        .kvParams();
                        p.close();
                        p = prefiller(2, Map.of(), options("PUT_ASYNC", pPort));
                        // Held by the old one: the new one says so at once, and does not make
                        // anybody wait for a prompt that it never heard of.
                        long begin = System.nanoTime();
                        var outcome = finished(decode(d, prompt(i + 50, TOKENS), held));
                        assertThat(loaded(outcome)).isZero();
                        assertThat(Duration.ofNanos(System.nanoTime() - begin))
                                .isLessThan(Duration.ofSeconds(40));
                    } else {
                        d.close();
                        assertNothingStaged(pool);
                        d = decoder(2, Map.of(), options("PUT_ASYNC", dPort), pool);
                    }
                    var old = finished(decode(d, prompt, lost));
                    assertThat(tokens(old)).isEqualTo(tokensAlone(alone, prompt));
                    finished(prefill(p, prompt, "again" + i, dPort));
                    var outcome = finished(decode(d, prompt, "again" + i, pPort));
                    assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                    assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
                }
                assertNothingHeld(d);
                assertNothingStaged(pool);
            } finally {
                p.close();
                d.close();
            }
        }
    }

    @Test
    @DisplayName("P8 a decoder that never answers delays one step and no other")
    void aDecoderThatNeverAnswersDelaysOneStepAndNoOther() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("push_timeout", "1s");
        try (var silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool)) {
            long begin = System.nanoTime();
            for (int i = 0; i < 4; i++) {
                finished(prefill(p, prompt(0, TOKENS), "nobody" + i, silent.getLocalPort()));
            }
            // Four times the limit of a push, which a busy machine may need for the other three.
            long penalties = (System.nanoTime() - begin) / Duration.ofSeconds(4).toNanos();
            assertThat(connections(silent))
                    .as("nothing is offered again to a decoder that did not answer in time")
                    .isBetween(1, 1 + (int) penalties);
            finished(prefill(p, prompt(9, TOKENS), "x", dPort));
            var outcome = finished(decode(d, prompt(9, TOKENS), "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(9, TOKENS)));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            for (int i = 0; i < 4; i++) {
                finished(decode(d, prompt(0, TOKENS), "nobody" + i, pPort));
            }
            assertNothingHeld(p);
        }
    }

    private static int connections(ServerSocket server) throws IOException {
        server.setSoTimeout(200); // they wait in the backlog
        for (int count = 0; ; count++) {
            try {
                server.accept().close();
            } catch (SocketTimeoutException e) {
                return count;
            }
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

    /// Nobody computes the prompt: the prefiller says so after its own limit, and keeps nothing.
    @Test
    @DisplayName("P23 a pull that waits too long is refused")
    void aPullThatWaitsTooLongIsRefused() throws IOException {
        int pPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("receive_timeout", "1s");
        pOptions.put("transfer_timeout", "1s");
        var dOptions = options("PUT_ASYNC", 0);
        dOptions.put("receive_timeout", "300s");
        try (var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), dOptions, StagingPool.NONE)) {
            int[] prompt = prompt(1, TOKENS);
            var outcome = finished(decode(d, prompt, "never", pPort));
            assertThat(loaded(outcome)).isZero();
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertNothingHeld(p);
        }
    }
}
