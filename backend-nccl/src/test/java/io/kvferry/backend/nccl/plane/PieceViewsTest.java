// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.stream.IntStream;

class PieceViewsTest {
    private static final int RUNS = HostWire.MOST_BLOCKS;

    /// After a burst of transfers of many parts with scattered blocks.
    @Test
    void whatIsKeptOfTransfersHasALimit() {
        try (var arena = Arena.ofConfined()) {
            var blocks = new int[RUNS];
            for (int i = 0; i < RUNS; i++) {
                blocks[i] = 2 * i;
            }
            var part = new Placement.Part(0, arena.allocate(2 * RUNS), 1, 1, blocks);
            var pool = new PieceViews.Pool();
            var used = new ArrayList<PieceViews>();
            for (int i = 0; i < 8; i++) {
                var views = pool.take();
                for (int index = 0; index < 64; index++) {
                    views.show(index, part, 0, RUNS);
                }
                used.add(views);
            }
            used.forEach(pool::give);
            assertThat(pool.viewsIdle()).isBetween(64L * RUNS, (long) PieceViews.MOST_IDLE_VIEWS);
            assertThat(used).as("kept for the next").contains(pool.take());
        }
    }

    /// The next transfer may have them.
    @Test
    void viewsThatCouldNotGrowAreAsGoodAsBefore(@TempDir Path folder) throws Exception {
        assertThat(FullHeap.runSweep(folder, 16, Child.class)).isPositive();
    }

    static final class Child implements FullHeap.Trial {
        private static final int MOST_IDLE = 32;

        private final PieceViews.Pool pool = new PieceViews.Pool();
        private final Placement.Part scattered;
        private PieceViews views = new PieceViews();

        private Child(Arena arena) {
            var blocks = IntStream.range(0, RUNS).map(i -> 2 * i).toArray();
            scattered = new Placement.Part(0, arena.allocate(2 * RUNS), 1, 1, blocks);
        }

        public static void main(String[] args) {
            FullHeap.sweepAndExit(336, 1 << 18, new Child(Arena.global()));
        }

        @Override
        public void prepare() {
            views = pool.take();
            views.show(0, scattered, 0, 1);
        }

        @Override
        public boolean work() {
            views.show(0, scattered, 0, 40);
            pool.give(views);
            return true;
        }

        @Override
        public void check(int left) {
            takeAll(); // those that are used now are not idle
            views.show(0, scattered, 0, RUNS);
            assertThat(views.count()).as("runs, %d bytes left", left).isEqualTo(RUNS);
            for (int i = 0; i < MOST_IDLE; i++) {
                var fresh = new PieceViews();
                fresh.show(0, scattered, 0, 1);
                pool.give(fresh);
            }
            assertThat(pool.viewsIdle()).as("kept, %d bytes left", left).isEqualTo(4L * MOST_IDLE);
            takeAll();
        }

        private void takeAll() {
            for (int i = 0; i < MOST_IDLE; i++) {
                var _ = pool.take();
            }
        }
    }
}
