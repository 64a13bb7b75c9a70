// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.events.KvEvent;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
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

    /// Events in any order, with blocks that were never stored, told twice or of other sizes: the
    /// longest prefix is that of a plain list of what is known.
    @Test
    void agreesWithAPlainListOfBlocksWhateverComes() {
        var random = new Random(11);
        for (int run = 0; run < 200; run++) {
            var prefixes = new CachedPrefixes("p", 1000);
            var model = new Model();
            for (int step = 0; step < 100; step++) {
                var event = randomEvent(random);
                prefixes.heard(List.of(event));
                model.hear(event);
                var prompt = random.ints(12, 0, 2).toArray();
                assertThat(prefixes.longest(prompt, ""))
                        .as("run %s, step %s, %s", run, step, event)
                        .isEqualTo(model.longest(prompt));
            }
        }
    }

    private static KvEvent randomEvent(Random random) {
        return switch (random.nextInt(40)) {
            case 0 -> new KvEvent.Cleared();
            case 1, 2, 3, 4, 5, 6 -> new KvEvent.Removed(random.longs(2, 1, 30).toArray());
            default -> {
                var blocks = random.longs(3, 1, 30).distinct().toArray();
                int blockTokens = random.nextInt(10) == 0 ? 1 : 3;
                yield new KvEvent.Stored(
                        blocks,
                        random.nextInt(3) == 0
                                ? OptionalLong.empty()
                                : OptionalLong.of(1 + random.nextInt(30)),
                        random.ints((long) blocks.length * blockTokens, 0, 2).toArray(),
                        blockTokens,
                        "");
            }
        };
    }

    private static final class Model {
        private final Map<Long, List<Integer>> prefixes = new HashMap<>();
        private int blockTokens;

        void hear(KvEvent event) {
            switch (event) {
                case KvEvent.Cleared _ -> prefixes.clear();
                case KvEvent.Removed(long[] blocks) ->
                        Arrays.stream(blocks).forEach(prefixes::remove);
                case KvEvent.Stored stored -> store(stored);
            }
        }

        private void store(KvEvent.Stored stored) {
            if (prefixes.isEmpty()) {
                blockTokens = stored.blockTokens();
            }
            var before =
                    stored.parent().isEmpty()
                            ? List.<Integer>of()
                            : prefixes.get(stored.parent().getAsLong());
            if (stored.blockTokens() != blockTokens || before == null) {
                return;
            }
            var tokens = new ArrayList<>(before);
            for (int i = 0; i < stored.blocks().length; i++) {
                for (int j = 0; j < blockTokens; j++) {
                    tokens.add(stored.tokens()[i * blockTokens + j]);
                }
                prefixes.put(stored.blocks()[i], List.copyOf(tokens));
            }
        }

        int longest(int[] prompt) {
            var all = Set.copyOf(prefixes.values());
            var tokens = Arrays.stream(prompt).boxed().toList();
            int found = 0;
            while (blockTokens > 0
                    && found + blockTokens <= prompt.length
                    && all.contains(tokens.subList(0, found + blockTokens))) {
                found += blockTokens;
            }
            return found;
        }
    }
}
