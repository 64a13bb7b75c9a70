// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.util.ArrayList;

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
}
