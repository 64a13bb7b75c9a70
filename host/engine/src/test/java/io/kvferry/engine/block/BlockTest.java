// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import org.junit.jupiter.api.Test;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.Random;
import java.util.stream.IntStream;

/// The block pool.
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
        assertThat(pool.find(chain, 2, 0, -1)).isEqualTo(2);
        assertThat(pool.find(chain, 2, 1, -1)).isEqualTo(-1);
        assertThat(pool.allocate()).isEqualTo(3);
        pool.retain(2);
        assertThat(pool.allocate()).isEqualTo(1);
        assertThat(pool.find(chain, 1, 0, -1)).isEqualTo(-1);
        assertThat(pool.find(chain, 2, 0, -1)).isEqualTo(2);
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
            int guess = random.nextInt(blocks + 2) - 1; // makes no difference
            assertThat(pool.find(chain, probe, 0, guess))
                    .as("seed %s", seed)
                    .isEqualTo(cached.getOrDefault(probe, -1));
        }
        pool.check();
        assertThat(pool.cached()).isEqualTo(cached.size());
        assertThat(new ArrayList<>(held)).hasSize(blocks - pool.free());
    }
}
