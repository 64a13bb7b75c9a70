// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.MemoryKind;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Random;

class DescriptorListTest {
    @Test
    void equalStridesBecomeOneRun() {
        var list =
                DescriptorList.builder(MemoryKind.HOST)
                        .addStrided(3, 1000, 64, 128, 100_000)
                        .build();
        assertThat(list.runs()).isEqualTo(1);
        assertThat(list.count()).isEqualTo(100_000);
        assertThat(list.bytes()).isEqualTo(6_400_000);
        assertThat(list.address(99_999)).isEqualTo(1000 + 99_999L * 128);
        assertThat(list.length(5)).isEqualTo(64);
        assertThat(list.device(7)).isEqualTo(3);
    }

    @Test
    void anythingCanBeReadBack() {
        var random = new Random(11);
        for (int round = 0; round < 200; round++) {
            var builder = DescriptorList.builder(MemoryKind.HOST);
            var added = new ArrayList<long[]>();
            for (int i = 0; i < 1 + random.nextInt(60); i++) {
                long[] range = {
                    random.nextInt(2), random.nextInt(6) * 64L, 64L * (1 + random.nextInt(2))
                };
                added.add(range);
                builder.add(range[0], range[1], range[2]);
            }
            var list = builder.build();
            assertThat(list.count()).isEqualTo(added.size());
            assertThat(list.runs()).isLessThanOrEqualTo(added.size());
            long bytes = 0;
            for (int i = 0; i < added.size(); i++) {
                assertThat(new long[] {list.device(i), list.address(i), list.length(i)})
                        .isEqualTo(added.get(i));
                bytes += added.get(i)[2];
            }
            assertThat(list.bytes()).isEqualTo(bytes);
        }
    }

    @Test
    void descendingAndRepeatedRangesAreRunsToo() {
        var down = DescriptorList.builder(MemoryKind.HOST).addStrided(0, 1000, 10, -10, 50).build();
        assertThat(down.runs()).isEqualTo(1);
        assertThat(down.address(49)).isEqualTo(510);
        var same =
                DescriptorList.builder(MemoryKind.HOST)
                        .add(0, 5, 1)
                        .add(0, 5, 1)
                        .add(0, 5, 1)
                        .build();
        assertThat(same.runs()).isEqualTo(1);
        assertThat(same.address(2)).isEqualTo(5);
    }

    @Test
    void pairsWithListsOfEqualLengthsOnly() {
        var random = new Random(12);
        int pairs = 0;
        for (int round = 0; round < 2_000; round++) {
            int count = 1 + random.nextInt(6);
            var one = DescriptorList.builder(MemoryKind.HOST);
            var other = DescriptorList.builder(MemoryKind.HOST);
            boolean equal = true;
            for (int i = 0; i < count; i++) {
                int length = 1 + random.nextInt(2);
                int its = random.nextInt(8) == 0 ? 1 + random.nextInt(2) : length;
                one.add(0, random.nextInt(4) * 64L, length);
                other.add(random.nextInt(2), random.nextInt(4) * 64L, its);
                equal &= length == its;
            }
            if (random.nextInt(8) == 0) {
                other.add(0, 0, 1);
                equal = false;
            }
            assertThat(one.build().pairsWith(other.build())).isEqualTo(equal);
            assertThat(other.build().pairsWith(one.build())).isEqualTo(equal);
            pairs += equal ? 1 : 0;
        }
        assertThat(pairs).isBetween(200, 1_800);
    }

    @Test
    void refusesNothingAndNonsense() {
        var builder = DescriptorList.builder(MemoryKind.FILE);
        assertThatThrownBy(builder::build).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> builder.add(0, 0, 0)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> builder.add(0, 0, -1))
                .isInstanceOf(IllegalArgumentException.class);
        builder.add(0, 0, Long.MAX_VALUE);
        assertThatThrownBy(() -> builder.add(0, 0, 1)).isInstanceOf(ArithmeticException.class);
        var list = DescriptorList.of(MemoryKind.FILE, 0, 0, 10);
        assertThatThrownBy(() -> list.address(1)).isInstanceOf(IndexOutOfBoundsException.class);
        assertThatThrownBy(() -> list.length(-1)).isInstanceOf(IndexOutOfBoundsException.class);
    }
}
