// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;

class GrowSafeQueueTest {
    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void isLikeAnArrayDeque(long seed) {
        var random = new Random(seed);
        var queue = new GrowSafeQueue<Integer>();
        var expected = new ArrayDeque<Integer>();
        for (int i = 0; i < 10_000; i++) {
            int choice = random.nextInt(12);
            if (choice < 6) {
                assertThat(queue.add(i)).isEqualTo(expected.add(i));
            } else if (choice < 10) {
                assertThat(queue.poll()).isEqualTo(expected.poll());
            } else {
                Integer some = i - random.nextInt(100);
                assertThat(queue.remove(some)).isEqualTo(expected.remove(some));
            }
            assertThat(queue).hasSize(expected.size());
            assertThat(queue.peek()).isEqualTo(expected.peek());
        }
        assertThat(queue).containsExactlyElementsOf(expected);
    }

    @Test
    void isAsItWasWhereItCannotGrow() throws Exception {
        assertThat(FullHeap.runSweep(root, 8, Child.class)).isPositive();
    }

    static final class Child implements FullHeap.Trial {
        private static final int ROOM = 16;
        private static final List<Integer> MANY = IntStream.range(0, ROOM + 1).boxed().toList();

        private GrowSafeQueue<Integer> queue = new GrowSafeQueue<>();
        private boolean added;

        public static void main(String[] args) {
            FullHeap.sweepAndExit(16, 4096, new Child());
        }

        @Override
        public void prepare() {
            queue = new GrowSafeQueue<>();
            queue.addAll(MANY.subList(0, ROOM));
            added = false;
        }

        @Override
        public boolean work() {
            added = queue.add(MANY.getLast());
            return added;
        }

        @Override
        public void check(int left) {
            if (!added) {
                queue.add(MANY.getLast());
            }
            assertThat(queue).containsExactlyElementsOf(MANY);
            assertThat(queue.poll()).isZero();
        }
    }
}
