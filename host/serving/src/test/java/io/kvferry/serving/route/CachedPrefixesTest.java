// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.events.KvEvent;

import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.stream.IntStream;

class CachedPrefixesTest {
    private static final int[] TOKENS = IntStream.range(0, 40).toArray();

    private final CachedPrefixes cached = new CachedPrefixes("p", 100);

    private void store(long parent, int from, int to, long... blocks) {
        store("", parent, from, to, blocks);
    }

    private void store(String salt, long parent, int from, int to, long... blocks) {
        cached.heard(
                List.of(
                        new KvEvent.Stored(
                                blocks,
                                parent == 0 ? OptionalLong.empty() : OptionalLong.of(parent),
                                Arrays.copyOfRange(TOKENS, from, to),
                                4,
                                salt)));
    }

    @Test
    void blocksOfATenantAreThoseOfNoOther() {
        store("a", 0, 0, 8, 1, 2);
        store(2, 8, 12, 3);
        assertThat(cached.longest(TOKENS, "a")).isEqualTo(12);
        assertThat(cached.longest(TOKENS, "b")).isZero();
        assertThat(cached.longest(TOKENS, "")).isZero();
        store("", 0, 0, 4, 4);
        assertThat(cached.longest(TOKENS, "")).isEqualTo(4);
        assertThat(cached.longest(TOKENS, "a")).isEqualTo(12);
    }

    @Test
    void findsTheLongestPrefixOverSeveralEvents() {
        assertThat(cached.longest(TOKENS, "")).isZero();
        store(0, 0, 8, 1, 2);
        store(2, 8, 12, 3);
        assertThat(cached.longest(TOKENS, "")).isEqualTo(12);
        assertThat(cached.longest(Arrays.copyOf(TOKENS, 11), "")).isEqualTo(8);
        var other = TOKENS.clone();
        other[5] = 99;
        assertThat(cached.longest(other, "")).isEqualTo(4);
        assertThat(cached.longest(new int[0], "")).isZero();
    }

    @Test
    void aRemovedBlockEndsThePrefix() {
        store(0, 0, 12, 1, 2, 3);
        cached.heard(List.of(new KvEvent.Removed(new long[] {2, 77})));
        assertThat(cached.longest(TOKENS, "")).isEqualTo(4);
        store(1, 4, 8, 2);
        assertThat(cached.longest(TOKENS, "")).isEqualTo(12);
    }

    @Test
    void twoBlocksOfTheSameTokensAreRemovedOneByOne() {
        store(0, 0, 4, 1);
        store(0, 0, 4, 11); // another hash of the engine
        store(0, 0, 4, 1); // told again
        cached.heard(List.of(new KvEvent.Removed(new long[] {1})));
        assertThat(cached.longest(TOKENS, "")).isEqualTo(4);
        cached.heard(List.of(new KvEvent.Removed(new long[] {11})));
        assertThat(cached.longest(TOKENS, "")).isZero();
    }

    @Test
    void aBlockAfterAnUnknownOneIsIgnored() {
        store(5, 8, 12, 6);
        assertThat(cached.longest(TOKENS, "")).isZero();
        assertThat(cached.ignored.sum()).isEqualTo(1);
    }

    @Test
    void isEmptyWhenEventsAreLostOrTheCacheIsCleared() {
        store(0, 0, 4, 1);
        cached.lost("gap");
        assertThat(cached.longest(TOKENS, "")).isZero();
        assertThat(cached.losses.sum()).isEqualTo(1);
        store(0, 0, 4, 1);
        cached.heard(List.of(new KvEvent.Cleared()));
        assertThat(cached.size()).isZero();
    }

    @Test
    void rememberNoMoreThanItsLimit() {
        for (int i = 0; i < 300; i++) {
            cached.heard(
                    List.of(
                            new KvEvent.Stored(
                                    new long[] {i},
                                    OptionalLong.empty(),
                                    new int[] {i, i, i, i},
                                    4,
                                    "")));
        }
        assertThat(cached.size()).isEqualTo(100);
        assertThat(cached.ignored.sum()).isEqualTo(200);
    }
}
