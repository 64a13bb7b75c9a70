// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Random;
import java.util.stream.IntStream;

/// Block hashes and the block pool.
class BlockTest {
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("model", "runner-1", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");

    private static HashChain chain(CacheNamespace namespace, String salt, int... tokens) {
        var hasher = BlockHasher.of(namespace);
        var chain = new HashChain(hasher.root(salt), 1);
        hasher.extend(
                chain, tokens, tokens.length / namespace.blockTokens(), BlockHasher.Extra.NONE);
        return chain;
    }

    /// The formula of the documentation, written a second time.
    @Test
    void hashesAsDocumented() throws Exception {
        var sha = MessageDigest.getInstance("SHA-256");
        sha.update("kvferry-blocks-1".getBytes(StandardCharsets.US_ASCII));
        sha.update(NAMESPACE.contentDigest());
        var parent = sha.digest("salt".getBytes(StandardCharsets.UTF_8));
        for (int block = 0; block < 2; block++) {
            var tokens = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
            for (int i = 0; i < 4; i++) {
                tokens.putInt(4 * block + i + 1);
            }
            sha.update(parent);
            parent = sha.digest(tokens.array());
            assertThat(chain(NAMESPACE, "salt", 1, 2, 3, 4, 5, 6, 7, 8).get(block))
                    .isEqualTo(BlockHash.of(parent, 0));
        }
    }

    /// Stored blocks outlive processes and releases: these values may never change. Computed with
    /// Python's hashlib.
    @Test
    void hashesTheSameInEveryProcess() {
        var chain = chain(NAMESPACE, "", 1, 2, 3, 4, 5, 6, 7, 8);
        assertThat(chain.get(0).hex())
                .isEqualTo("6f1edf92e79b82cff1b864a449e327195d74262fb777657b48eb901bda1f1965");
        assertThat(chain.get(1).hex())
                .isEqualTo("0050c1ebdcebea544deacef316c95e3615bd18f3825983bfa67da5223fd6a63f");
    }

    @Test
    void differsByEverythingThatMatters() {
        var other =
                new CacheNamespace(
                        "model", "runner-2", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");
        var seen = new HashSet<BlockHash>();
        seen.add(chain(NAMESPACE, "", 1, 2, 3, 4).get(0));
        seen.add(chain(NAMESPACE, "", 1, 2, 3, 5).get(0));
        seen.add(chain(NAMESPACE, "s", 1, 2, 3, 4).get(0));
        seen.add(chain(other, "", 1, 2, 3, 4).get(0));
        seen.add(chain(NAMESPACE, "", 9, 9, 9, 9, 1, 2, 3, 4).get(1));
        assertThat(seen).hasSize(5);
    }

    @Test
    void handsOutTheLeastRecentlyReleasedBlockFirstAndCachedOnesLast() {
        var pool = new CachePool(4, CachePool.Evictions.IGNORED);
        var chain = chain(NAMESPACE, "", IntStream.range(0, 16).toArray());
        for (int i = 0; i < 4; i++) {
            assertThat(pool.allocate()).isEqualTo(i);
        }
        assertThatThrownBy(pool::allocate).isInstanceOf(IllegalStateException.class);
        pool.publish(2, chain, 2, 0);
        pool.publish(1, chain, 1, 0);
        pool.release(2);
        pool.release(1);
        pool.release(3);
        assertThat(pool.find(chain, 2, 0)).isEqualTo(2);
        assertThat(pool.find(chain, 2, 1)).isEqualTo(-1);
        assertThat(pool.allocate()).isEqualTo(3);
        pool.retain(2);
        assertThat(pool.allocate()).isEqualTo(1);
        assertThat(pool.find(chain, 1, 0)).isEqualTo(-1);
        assertThat(pool.find(chain, 2, 0)).isEqualTo(2);
        pool.check();
        assertThatThrownBy(
                        () -> {
                            pool.release(0);
                            pool.release(0);
                        })
                .isInstanceOf(IllegalStateException.class);
    }

    @Test
    void behavesLikeAMapAndAQueueInRandomUse() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        int blocks = 64;
        var pool = new CachePool(blocks, CachePool.Evictions.IGNORED);
        var chain = chain(NAMESPACE, "", IntStream.range(0, 4 * 500).toArray());
        var cached = new HashMap<Integer, Integer>();
        Deque<Integer> held = new ArrayDeque<>();
        for (int i = 0; i < 100_000; i++) {
            switch (random.nextInt(3)) {
                case 0 -> {
                    if (pool.free() > 0) {
                        int block = pool.allocate();
                        cached.values().remove(block);
                        held.add(block);
                    }
                }
                case 1 -> {
                    if (!held.isEmpty()) {
                        pool.release(held.poll());
                    }
                }
                default -> {
                    if (!held.isEmpty()) {
                        int position = random.nextInt(500);
                        int block = held.peekLast();
                        if (pool.publish(block, chain, position, 0)) {
                            cached.put(position, block);
                        }
                    }
                }
            }
            int probe = random.nextInt(500);
            assertThat(pool.find(chain, probe, 0))
                    .as("seed %s", seed)
                    .isEqualTo(cached.getOrDefault(probe, -1));
        }
        pool.check();
        assertThat(pool.cached()).isEqualTo(cached.size());
        assertThat(new ArrayList<>(held)).hasSize(blocks - pool.free());
    }
}
