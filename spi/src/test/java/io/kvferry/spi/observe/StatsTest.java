// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.Map;
import java.util.Random;

class StatsTest {
    private static Stats random(Random random) {
        var stats = Stats.EMPTY;
        for (int i = 0; i < 6; i++) {
            stats = stats.merge(Stats.counter("c" + random.nextInt(4), random.nextInt(100)));
            stats =
                    stats.merge(
                            new Stats(
                                    Map.of(),
                                    Map.of("g" + random.nextInt(3), random.nextLong(-50, 50)),
                                    Map.of(
                                            "d" + random.nextInt(3),
                                            Distribution.of(random.nextInt(5000)))));
        }
        return stats;
    }

    @Test
    void mergesInAnyOrder() {
        var random = new Random(5);
        for (int i = 0; i < 100; i++) {
            var a = random(random);
            var b = random(random);
            var c = random(random);
            assertThat(a.merge(b)).isEqualTo(b.merge(a));
            assertThat(a.merge(b).merge(c)).isEqualTo(a.merge(b.merge(c)));
            assertThat(a.merge(Stats.EMPTY)).isEqualTo(a);
        }
    }

    @Test
    void aGaugeAddsUpOverRanks() {
        var rank0 = Stats.gauge("bytes", 5).merge(Stats.counter("loads", 1));
        var rank1 = Stats.gauge("bytes", 7).merge(Stats.counter("loads", 2));
        assertThat(rank0.merge(rank1).gauges().getOrDefault("bytes", 0L)).isEqualTo(12);
    }

    @Test
    void distributionsCountInPowersOfTwo() {
        var all = Distribution.of(1);
        for (long v = 2; v <= 1000; v++) {
            all = all.merge(Distribution.of(v));
        }
        assertThat(all.sum()).isEqualTo(500_500);
        assertThat(all.bucket(9)).as("256 to 511").isEqualTo(256);
        assertThat(all.bucket(10)).as("512 to 1000").isEqualTo(489);
        assertThat(Distribution.of(-5).sum()).isZero();
        assertThat(Distribution.of(Long.MAX_VALUE).bucket(Distribution.BUCKETS - 1)).isEqualTo(1);
    }
}
