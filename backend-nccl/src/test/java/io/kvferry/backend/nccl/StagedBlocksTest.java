// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

class StagedBlocksTest {
    private static KvRegion region(Arena arena, int layer) {
        var memory = new MemoryRange.Host(arena.allocate(4 * 4096, 64));
        return new KvRegion("l" + layer, layer, 0, memory, 4, 4096, 4096);
    }

    @Test
    void whatWasTakenGoesBackWhereTheRestFails() {
        try (var arena = Arena.ofConfined();
                var real = new BuddyStagingPool(1 << 20)) {
            var left = new AtomicInteger(1);
            var pool =
                    (StagingPool)
                            Proxy.newProxyInstance(
                                    StagingPool.class.getClassLoader(),
                                    new Class<?>[] {StagingPool.class},
                                    (_, method, arguments) -> {
                                        if (method.getName().equals("segment")
                                                && left.getAndDecrement() == 0) {
                                            throw new OutOfMemoryError("says the test");
                                        }
                                        return method.invoke(real, arguments);
                                    });
            var cache = new CacheBlocks(List.of(region(arena, 0), region(arena, 1)));
            var staged = new StagedBlocks("test", pool, 1 << 20, cache);
            assertThatThrownBy(() -> staged.take(new int[] {2}))
                    .isInstanceOf(OutOfMemoryError.class);
            assertThat(staged.taken()).isZero();
            assertThat(real.available()).isEqualTo(real.capacity());
        }
    }
}
