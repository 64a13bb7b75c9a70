// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;

/// D2 and D6 of the disk specification, with real processes that are killed.
class CrashTest {
    @TempDir Path root;

    @ParameterizedTest
    @CsvSource({"AUTO, die", "OFF, die", "OFF, over"})
    @Timeout(300)
    void leavesAllOrNothingWhenItDiesBeforeOneCallInFourOfASave(DirectIo direct, String mode)
            throws Exception {
        dieBefore(direct, mode, (int) (System.nanoTime() % 4) + 1, 4);
    }

    @ParameterizedTest
    @CsvSource({"AUTO, die", "OFF, die", "OFF, over"})
    @Tag("soak")
    @Timeout(600)
    void leavesAllOrNothingWhenItDiesBeforeAnyCallOfASave(DirectIo direct, String mode)
            throws Exception {
        dieBefore(direct, mode, 1, 1);
    }

    /// Kills the process before the first of these calls, then before the call `stride` later, and
    /// so on, until a save makes fewer calls.
    private void dieBefore(DirectIo direct, String mode, int first, int stride) throws Exception {
        var durability = Durability.STRICT; // makes every call that the others make, and more
        boolean finished = false;
        for (int call = first; !finished; call += stride) {
            Path folder = root.resolve("call" + call);
            Process child = StoreChild.start(folder, durability, direct, mode, call);
            int code = child.waitFor();
            finished = code == 0;
            assertThat(code).as("exit code, call %d", call).isIn(0, StoreChild.DIED_AT_CALL);
            int whole = verify(folder, durability);
            if (finished) {
                assertThat(whole).isEqualTo(1);
                assertThat(call).as("file calls of one save").isGreaterThan(6);
            }
        }
    }

    @Test
    @Timeout(300)
    void neverShowsAPartOfABlockAfterKillsAtRandomTimes() throws Exception {
        killAtRandom(6);
    }

    @Test
    @Tag("soak")
    @Timeout(1800)
    void neverShowsAPartOfABlockAfterHundredsOfKills() throws Exception {
        killAtRandom(Integer.getInteger("kvferry.soak.kills", 400));
    }

    private void killAtRandom(int rounds) throws Exception {
        long seed = System.nanoTime();
        var random = new SplittableRandom(seed);
        int whole = 0;
        for (int round = 0; round < rounds; round++) {
            Durability durability = List.of(Durability.values()).get(round % 3);
            DirectIo direct = round / 3 % 2 == 0 ? DirectIo.AUTO : DirectIo.OFF;
            Process child = StoreChild.start(root, durability, direct, "loop", seed + round);
            assertReady(child);
            // The child answers the wait by dying or not at all: this is when to kill, not what to
            // wait for.
            child.waitFor(random.nextLong(1, 400), TimeUnit.MILLISECONDS);
            assertThat(child.isAlive()).as("the child fails by itself, seed %d", seed).isTrue();
            child.destroyForcibly().waitFor();
            whole += verify(root, durability);
        }
        assertThat(whole).as("blocks found, seed %d", seed).isPositive();
    }

    @Test
    @Timeout(300)
    void letsSeveralProcessesSaveTheSameBlocks() throws Exception {
        var children = new Process[3];
        for (int i = 0; i < children.length; i++) {
            children[i] =
                    StoreChild.start(
                            root,
                            Durability.NONE,
                            DirectIo.AUTO,
                            "loop",
                            5); // the same keys in the same order
        }
        for (Process child : children) {
            assertReady(child);
        }
        children[0].waitFor(1500, TimeUnit.MILLISECONDS);
        for (Process child : children) {
            assertThat(child.isAlive()).isTrue();
            child.destroyForcibly().waitFor();
        }
        assertThat(verify(root, Durability.NONE)).isPositive();
    }

    private static void assertReady(Process child) throws Exception {
        var out =
                new BufferedReader(
                        new InputStreamReader(child.getInputStream(), StandardCharsets.UTF_8));
        assertThat(out.readLine()).isEqualTo("ready");
    }

    /// Every block is whole or absent, temps of the dead are reaped, and the index agrees with the
    /// disk.
    private static int verify(Path folder, Durability durability) {
        var config =
                StoreChild.config(folder, durability, DirectIo.AUTO)
                        .with(
                                new StoreConfig.Times(
                                        StoreDriver.PATIENCE,
                                        Duration.ofSeconds(2),
                                        Duration.ZERO,
                                        Duration.ofHours(1),
                                        Duration.ofMinutes(1)));
        int whole = 0;
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < StoreChild.KEYS; i++) {
                var target = StoreDriver.empty(StoreChild.BLOCK_BYTES);
                BlockResult result = driver.load(StoreChild.key(i), target);
                if (result == BlockResult.Done.LOADED) {
                    assertThat(
                                    StoreDriver.same(
                                            StoreDriver.block(i, StoreChild.BLOCK_BYTES), target))
                            .isTrue();
                    whole++;
                } else {
                    assertThat(result.failedWith(ErrorCode.MISS)).as("%s", result).isTrue();
                }
            }
            assertThat(store.stats().corrupt()).isZero();
            StoreDriver.assertKnowsItsBytes(store);
        }
        assertThat(StoreDriver.temps(config)).isEmpty();
        return whole;
    }
}
