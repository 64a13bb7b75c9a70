// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.concurrent.TimeUnit;

/// Which refused writes are warned of.
class RefusedWritesTest {
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

    private final RefusedWrites refused = new RefusedWrites();

    @Test
    void eachHostIsWarnedOfAtOnceAndThenOnceAMinute() {
        long start = Long.MAX_VALUE - 30 * SECOND; // the clock may overflow
        assertThat(refused.note("a", start)).isEqualTo(1);
        assertThat(refused.note("a", start + SECOND)).isZero();
        assertThat(refused.note("b", start + SECOND)).isEqualTo(1);
        assertThat(refused.note("a", start + 59 * SECOND)).isZero();
        assertThat(refused.note("a", start + 60 * SECOND)).as("with those before").isEqualTo(3);
        assertThat(refused.note("a", start + 61 * SECOND)).isZero();
        assertThat(refused.total()).isEqualTo(6);
    }

    @Test
    void manyHostsAreCountedAndNotAllKept() {
        for (int i = 0; i < 5_000; i++) {
            assertThat(refused.note("host" + i, i)).isEqualTo(1);
        }
        assertThat(refused.total()).isEqualTo(5_000);
    }
}
