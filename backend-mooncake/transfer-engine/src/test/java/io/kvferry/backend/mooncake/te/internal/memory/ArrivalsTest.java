// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.WriteGrant.Received;

import org.junit.jupiter.api.Test;

import java.util.BitSet;
import java.util.Random;

class ArrivalsTest {
    private static final int BYTES = 600;
    private static final long BASE = 0x7000_0000_0000L;

    private static Extents wanted(int from, int length) {
        return Extents.of(BASE + from, length);
    }

    /// Against one bit per byte, with writes in any order, twice, and over each other.
    @Test
    void everythingHasArrivedWhenEveryByteHas() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int round = 0; round < 200; round++) {
            var arrivals = new Arrivals();
            var seen = new BitSet();
            var builder = new Extents.Builder();
            var needed = new BitSet();
            for (int i = 0; i < 1 + random.nextInt(5); i++) {
                int from = random.nextInt(BYTES - 60);
                int length = 1 + random.nextInt(60);
                builder.add(BASE + from, length);
                needed.set(from, from + length);
            }
            var wanted = builder.build();
            boolean all = false;
            for (int i = 0; i < 2000 && !all; i++) {
                int from = random.nextInt(BYTES - 20);
                int length = 1 + random.nextInt(20);
                arrivals.arrived(BASE + from, length, false);
                seen.set(from, from + length);
                var missing = (BitSet) needed.clone();
                missing.andNot(seen);
                all = missing.isEmpty();
                assertThat(arrivals.received(wanted))
                        .as("seed %d, round %d, write %d", seed, round, i)
                        .isEqualTo(all ? Received.ALL : Received.PART);
            }
        }
    }

    @Test
    void bytesThatComeOneByOneFromTheEndAreMerged() {
        var arrivals = new Arrivals();
        for (int i = 1_400_000 - 2; i >= 0; i -= 2) {
            arrivals.arrived(BASE + i, 1, false);
        }
        assertThat(arrivals.received(wanted(0, 1))).isEqualTo(Received.ALL);
        assertThat(arrivals.received(wanted(0, 2))).isEqualTo(Received.PART);
        for (int i = 1; i < 1_400_000; i += 2) {
            arrivals.arrived(BASE + i, 1, false);
        }
        assertThat(arrivals.received(wanted(0, 1_400_000))).isEqualTo(Received.ALL);
    }

    /// 16 bytes each.
    @Test
    void crumbsThatFillTheTableEndIt() {
        var arrivals = new Arrivals();
        for (int i = 0; i <= 1 << 20; i++) {
            arrivals.arrived(BASE + 2L * i, 1, false);
        }
        assertThat(arrivals.received(wanted(0, 1))).isEqualTo(Received.BROKEN);
    }

    @Test
    void onlySendersThatAreToldMayLeaveSomethingOut() {
        var arrivals = new Arrivals();
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.PART);
        arrivals.arrived(BASE, 4, true);
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.ACKNOWLEDGED);
        arrivals.refused(false, true);
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.ACKNOWLEDGED);
        arrivals.arrived(BASE + 4, 2, false);
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.PART);
        arrivals.refused(false, false);
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.BROKEN);
        arrivals.arrived(BASE + 6, 2, false);
        assertThat(arrivals.received(wanted(0, 8))).as("sent again").isEqualTo(Received.ALL);
        arrivals.refused(true, true);
        assertThat(arrivals.received(wanted(0, 8))).as("after the end").isEqualTo(Received.BROKEN);
    }

    @Test
    void whatEndedInTheMiddleIsNotMendedByWhatComesNext() {
        var arrivals = new Arrivals();
        arrivals.torn();
        arrivals.arrived(BASE, 8, false);
        assertThat(arrivals.received(wanted(0, 8))).isEqualTo(Received.BROKEN);
    }
}
