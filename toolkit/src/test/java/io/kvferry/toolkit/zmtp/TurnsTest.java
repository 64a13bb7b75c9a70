// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledThreadPoolExecutor;

class TurnsTest {
    @TempDir Path root;

    @Test
    void noTurnIsLostWhicheverAllocationFails() throws Exception {
        assertThat(FullHeap.runSweep(root, 16, Child.class)).isPositive();
    }

    static final class Child implements FullHeap.Trial, SideChannel.Answers {
        private static final int OTHERS = 200; // so many that a boxed number is not at hand
        private static final byte[] REQUEST = new byte[100];

        private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
        private final List<Exchange> open = new ArrayList<>();
        private ByteBudget room = new ByteBudget(1 << 20);
        private Turns turns = new Turns("test", room);
        private Exchange exchange = exchange("a");
        private Turns.@Nullable Verdict verdict;

        private Child() {}

        public static void main(String[] args) {
            FullHeap.sweepAndExit(32, 1 << 16, new Child());
        }

        @Override
        public SideChannel.Reading onAnswer(byte[] message) {
            return SideChannel.Reading.DONE;
        }

        @Override
        public void onLost(Failure failure) {}

        private Exchange exchange(String address) {
            return new Exchange(
                    address,
                    REQUEST,
                    Duration.ofMinutes(1),
                    Duration.ofMinutes(1),
                    SideChannel.Turn.LONG,
                    SideChannel.Carriage.ALONE,
                    this,
                    clock);
        }

        @Override
        public void prepare() {
            room = new ByteBudget(1 << 20);
            turns = new Turns("test", room);
            open.clear();
            admit("a", OTHERS);
            admit("b", 12);
            exchange = exchange("c");
            verdict = null;
        }

        private void admit(String address, int count) {
            for (int i = 0; i < count; i++) {
                var other = exchange(address);
                assertThat(turns.admit(other)).isInstanceOf(Turns.Verdict.Begin.class);
                open.add(other);
            }
        }

        @Override
        public boolean work() {
            verdict = turns.admit(exchange);
            var _ = turns.ended(exchange);
            return true;
        }

        @Override
        public void check(int left) {
            if (verdict != null) {
                var _ = turns.ended(exchange);
            }
            for (var other : open) {
                assertThat(turns.ended(other)).isNull();
            }
            assertThat(room.taken()).as("bytes of requests, %d bytes left", left).isZero();
            open.clear();
            admit("c", Turns.MOST_PER_PREFILLER);
            assertThat(turns.admit(exchange("c")))
                    .as("all turns are taken, %d bytes left", left)
                    .isInstanceOf(Turns.Verdict.Wait.class);
        }
    }
}
