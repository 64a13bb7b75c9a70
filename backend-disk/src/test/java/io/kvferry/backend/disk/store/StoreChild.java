// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import java.io.File;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/// What the child JVM of [CrashTest] runs: saves blocks whose bytes follow from their number.
public final class StoreChild {
    static final int KEYS = 40;
    static final long BLOCK_BYTES = 1_320_000; // more than a save writes at once
    static final long FILE_BYTES = 4096 + 1_323_008;
    static final int DIED_AT_CALL = 77;

    private StoreChild() {}

    /// @param args root, durability, direct I/O, then `loop SEED` or `die CALL` (ends the process
    ///   right before that file call of a save), `over CALL` (the same in a full store), or `fill
    ///   NUMBER` (saves as many blocks as its last three digits say, which nobody else saves, and
    ///   prints how many it stored and how many it evicted)
    public static void main(String[] args) {
        var config =
                config(Path.of(args[0]), Durability.valueOf(args[1]), DirectIo.valueOf(args[2]));
        if (args[3].equals("over")) {
            config = config.withQuota(FILE_BYTES, 1, 1);
        }
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            long number = Long.parseLong(args[4]);
            if (args[3].equals("fill")) {
                fill(driver, number);
                StoreDriver.shut(store); // so that nothing is evicted any more
                System.out.println(store.stats().saves() + " " + store.stats().evicted());
                return;
            }
            if (args[3].equals("over")) {
                driver.save(key(1), StoreDriver.block(1, BLOCK_BYTES));
            }
            if (!args[3].equals("loop")) {
                long fatal = calls.count() + number;
                calls.hook =
                        (_, count) -> {
                            if (count == fatal) {
                                Runtime.getRuntime().halt(DIED_AT_CALL);
                            }
                            return 0;
                        };
                driver.save(key(0), StoreDriver.block(0, BLOCK_BYTES));
                System.out.println("done");
                return;
            }
            driver.save(key(0), StoreDriver.block(0, BLOCK_BYTES));
            System.out.println("ready"); // whenever the kill comes, there is a block to find
            var random = new SplittableRandom(number);
            while (true) {
                int i = random.nextInt(KEYS);
                BlockResult result = driver.save(key(i), StoreDriver.block(i, BLOCK_BYTES));
                if (result instanceof BlockResult.Failed) {
                    throw new IllegalStateException(result.toString());
                }
            }
        }
    }

    private static void fill(StoreDriver driver, long number) {
        for (long i = 0; i < number % 1000; i++) {
            var result = driver.save(BlockKey.of("block " + number + "/" + i), block(number + i));
            if (result != BlockResult.Done.STORED) {
                throw new IllegalStateException(result.toString());
            }
        }
    }

    private static List<MemorySegment> block(long seed) {
        return StoreDriver.block(seed, BLOCK_BYTES);
    }

    /// Room for half of the keys, so that eviction runs all the time: in the background, or within
    /// each save, which then writes over the file of its victim.
    static StoreConfig config(Path root, Durability durability, DirectIo direct) {
        return StoreDriver.config(root)
                .withMedium(durability, direct)
                .withQuota(
                        KEYS / 2 * FILE_BYTES,
                        durability == Durability.DATA ? 0.7 : 1,
                        durability == Durability.DATA ? 0.9 : 1);
    }

    static BlockKey key(int i) {
        return BlockKey.of("block number " + i);
    }

    static Process start(
            Path root, Durability durability, DirectIo direct, String mode, long number)
            throws IOException {
        var command =
                new ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElseThrow(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-Xshare:auto",
                                "-XX:TieredStopAtLevel=1",
                                "-XX:+UseSerialGC",
                                "-cp",
                                System.getProperty(
                                        "surefire.test.class.path",
                                        System.getProperty("java.class.path")),
                                StoreChild.class.getName()));
        command.addAll(
                List.of(
                        root.toString(),
                        durability.name(),
                        direct.name(),
                        mode,
                        Long.toString(number)));
        return new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.to(new File("/dev/null")))
                .start();
    }
}
