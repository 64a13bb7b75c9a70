// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.hash;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashSet;
import java.util.stream.IntStream;

class BlockHasherTest {
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

    /// Hashes of blocks beyond the expected ones lie elsewhere, and so may tokens.
    @Test
    void makesNoDifferenceHowManyBlocksWereExpected() {
        var tokens = IntStream.range(0, 4 * 300).toArray();
        var hasher = BlockHasher.of(NAMESPACE);
        var whole = new HashChain(hasher.root(""), 300);
        hasher.extend(whole, tokens, 300, BlockHasher.Extra.NONE);
        for (int expected : new int[] {0, 1, 31, 32, 33, 299}) {
            var grown = new HashChain(hasher.root(""), expected);
            for (int blocks = 0; blocks <= 300; blocks++) {
                hasher.extend(grown, at -> tokens[at], blocks, BlockHasher.Extra.NONE);
                assertThat(grown.count()).isEqualTo(blocks);
            }
            for (int block = 0; block < 300; block++) {
                assertThat(grown.get(block))
                        .as("%s of %s", block, expected)
                        .isEqualTo(whole.get(block));
                assertThat(grown.word(block, 3)).isEqualTo(whole.word(block, 3));
                var words =
                        new long[] {
                            0,
                            grown.word(block, 0),
                            grown.word(block, 1),
                            grown.word(block, 2),
                            grown.word(block, 3)
                        };
                assertThat(whole.matches(block, words, 1)).isTrue();
                words[1 + block % 4]++;
                assertThat(whole.matches(block, words, 1)).isFalse();
            }
        }
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
}
