// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/// The blocks of one request.
class RequestBlocksTest {
    private final CachePool pool = new CachePool(16, CachePool.Evictions.IGNORED);

    @Test
    void takesBlocksInAscendingOrderHoweverTheyWereReleased() {
        for (int i = 0; i < 16; i++) {
            pool.allocate();
        }
        for (int i = 0; i < 16; i++) {
            pool.release(i * 7 % 16);
        }

        var blocks = new RequestBlocks(pool, 2);
        assertThat(blocks.grow(3)).isTrue();
        assertThat(blocks.grow(8)).isTrue();
        for (int group = 0; group < 2; group++) {
            assertThat(blocks.copy(group, 0, 3)).isSorted();
            assertThat(blocks.copy(group, 3, 8)).isSorted();
        }
        blocks.release();
        pool.check();
        assertThat(pool.free()).isEqualTo(16);
    }
}
