// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefiller;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/// A decoder whose pushes and whose encoder outputs lie in one staging pool. The model verifies
/// every byte of both that it did not compute itself.
class SharedPoolTest {
    /// A transfer of [P2pEngines#TOKENS] takes 4 layers x 128 KiB.
    private static final long TRANSFER = 4 * (128 << 10);

    /// Of an item: rows of 4 KiB.
    private static final int ROWS = 8;

    private static final long ITEM = ROWS * 4096L;
    private static final String KV = "P2pNcclConnector";
    private static final Map<String, Object> MODEL =
            Map.of("verify", "all", "embedding_width", 2048L);

    private final long seed = System.nanoTime();

    /// @param quota of the pushes in the pool
    private static Engine decoder(int port, StagingPool pool, long quota, StagedEc ec) {
        var options = options("PUT_ASYNC", port);
        options.put("mem_pool_size_gb", (double) quota / (1L << 30));
        return P2pEngines.open(
                KvRole.CONSUMER,
                MODEL,
                options,
                P2pEngines.host(pool),
                config ->
                        config.encoder(2 * ROWS, 2 * ROWS) // two items: the others are loaded
                                .ecConnector(
                                        ec,
                                        ConnectorConfig.of(
                                                StagedEc.NAME, KvRole.BOTH, "d", Map.of())));
    }

    private static GenerationRequest withItem(int which) {
        var content = ("item " + which).getBytes(StandardCharsets.UTF_8);
        var item = new EncoderInput("item " + which, "image", 4, ROWS, content);
        return GenerationRequest.of(prompt(1000, 40), SamplingParams.greedy(4))
                .withItems(List.of(item));
    }

    private static long loadedItems(Engine engine) {
        return engine.stats().counters().getOrDefault("items_loaded", 0L);
    }

    private static void awaitHeld(Engine engine, int requests) {
        var limit = Deadline.in(P2pEngines.SOON);
        while (engine.stats().held() != requests) {
            assertThat(limit.passed()).as("held: %s", engine.stats()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    private static long pushed(Engine p) {
        return p.stats().kvConnector().counters().getOrDefault("p2p_pushes", 0L);
    }

    @Test
    @DisplayName("P11 B12 pushes and encoder outputs share a pool, each within its part of it")
    void pushesAndEncoderOutputsShareAPool() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var random = new Random(seed);
        long kvQuota = 2 * TRANSFER;
        long ecQuota = 6 * ITEM;
        var pool = new BuddyStagingPool(2 * kvQuota);
        try (pool;
                var alone = alone(MODEL);
                var ec = new StagedEc(pool, ecQuota);
                var p = prefiller(1, MODEL, options("PUT_ASYNC", pPort));
                var d = decoder(dPort, pool, kvQuota, ec)) {
            var expected = tokens(finished(d.submit(withItem(0))));
            for (int i = 1; i < 8; i++) { // two more than there is room for
                assertThat(tokens(finished(d.submit(withItem(i))))).isEqualTo(expected);
            }
            for (int round = 0; round < 12; round++) {
                int many = 1 + random.nextInt(4); // up to twice of what fits
                for (int i = 0; i < many; i++) {
                    finished(prefill(p, prompt(10 * round + i, TOKENS), round + "-" + i, dPort));
                    assertThat(tokens(finished(d.submit(withItem(random.nextInt(8))))))
                            .as("seed %d", seed)
                            .isEqualTo(expected);
                    assertThat(pool.held().getOrDefault(KV, 0L)).isLessThanOrEqualTo(kvQuota);
                    assertThat(ec.kept()).isLessThanOrEqualTo(ecQuota);
                }
                for (int i = 0; i < many; i++) {
                    int[] prompt = prompt(10 * round + i, TOKENS);
                    var outcome = finished(decode(d, prompt, round + "-" + i, pPort));
                    assertThat(tokens(outcome))
                            .as("seed %d", seed)
                            .isEqualTo(tokensAlone(alone, prompt));
                    assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
                }
            }
            assertThat(loadedItems(d)).as("items that came out of the pool").isPositive();
            assertThat(ec.refused()).as("items beyond their part").isPositive();
            assertThat(pushed(p)).as("pushes that found room").isPositive();
            assertThat(ec.wrong()).isZero();
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
        assertThat(pool.held()).as("what somebody has not given back").isEmpty();
    }

    @Test
    @DisplayName("P12 a pool that a third plugin fills refuses both, and neither is wrong")
    void aFullPoolRefusesBoth() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pool = new BuddyStagingPool(2 * TRANSFER);
        try (pool;
                var alone = alone(MODEL);
                var ec = new StagedEc(pool, pool.capacity());
                var p = prefiller(1, MODEL, options("PUT_ASYNC", pPort));
                var d = decoder(dPort, pool, pool.capacity(), ec)) {
            long third = pool.allocate("third", pool.capacity());
            var expected = tokens(finished(d.submit(withItem(0))));
            for (int i = 0; i < 4; i++) {
                assertThat(tokens(finished(d.submit(withItem(i))))).isEqualTo(expected);
                finished(prefill(p, prompt(i, TOKENS), "full" + i, dPort));
            }
            assertThat(pushed(p)).isZero();
            awaitHeld(p, 4); // credit 0
            assertThat(ec.refused()).isPositive();
            assertThat(loadedItems(d)).isZero();
            for (int i = 0; i < 4; i++) {
                var outcome = finished(decode(d, prompt(i, TOKENS), "full" + i, pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(i, TOKENS)));
                assertThat(loaded(outcome)).as("pulled").isGreaterThanOrEqualTo(TOKENS - 1);
            }
            assertThat(pool.held()).isEqualTo(Map.of("third", pool.capacity()));
            pool.free(third);

            for (int i = 10; i < 14; i++) { // two of them are in the encoder cache
                finished(d.submit(withItem(i)));
            }
            assertThat(tokens(finished(d.submit(withItem(10))))).isEqualTo(expected);
            assertThat(loadedItems(d)).isPositive();
            assertThat(ec.wrong()).isZero();
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
        assertThat(pool.held()).isEmpty();
    }

    /// What was encoded can be encoded again.
    @Test
    @DisplayName("B12 encoder outputs that fill the pool give way to a push")
    void encoderOutputsGiveWayToAPush() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var pool = new BuddyStagingPool(TRANSFER);
        try (pool;
                var alone = alone(MODEL);
                var ec = new StagedEc(pool, pool.capacity());
                var p = prefiller(1, MODEL, options("PUT_ASYNC", pPort));
                var d = decoder(dPort, pool, pool.capacity(), ec)) {
            var expected = tokens(finished(d.submit(withItem(0))));
            for (int i = 1; pool.available() > 0; i++) {
                assertThat(tokens(finished(d.submit(withItem(i))))).isEqualTo(expected);
                assertThat(i).isLessThanOrEqualTo((int) (TRANSFER / ITEM));
            }
            finished(prefill(p, prompt(1, TOKENS), "x", dPort));
            assertThat(pushed(p)).as("the items gave way").isEqualTo(1);
            assertThat(tokens(finished(d.submit(withItem(0))))).as("a miss").isEqualTo(expected);
            var outcome = finished(decode(d, prompt(1, TOKENS), "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt(1, TOKENS)));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertThat(ec.wrong()).isZero();
            assertNothingHeld(p);
            assertNothingHeld(d);
        }
        assertThat(pool.held()).isEmpty();
    }
}
