// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.fail;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.Recency;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/// Several processes on one folder at its quota. They save, load, look up, crash at any file call,
/// and change their secret and clock, while others damage and delete files or leave files of
/// another format version. The content of a block follows from its name and the secret, so that
/// every loaded byte can be verified.
class InterleavingTest {
    private static final int KEYS = 24;

    /// About a third of them.
    private static final long QUOTA = 3_000_000;

    private static final int PROCESSES = 3;

    /// Where the magic of a file says the version.
    private static final int MAGIC_END = 7;

    /// From one small segment to several pieces of a file of a run.
    private static final long[][] SHAPES = {
        {700}, {5000, 3, 4093}, {30_000, 30_000, 30_000, 30_000}, {800_000, 500_000, 50_001}
    };

    @TempDir Path folder;

    private final AtomicLong clockDays = new AtomicLong();
    private final List<FleetKey> secrets = new ArrayList<>();

    /// Those of all runs, because each finds what the last one left, until something else has their
    /// name.
    private final Set<Path> damaged = new HashSet<>();

    private int deletedRoots;

    private static long[] shape(int i) {
        return SHAPES[i % SHAPES.length];
    }

    private static BlockKey key(int i) {
        return BlockKey.of("key " + i, i / 4);
    }

    private static List<MemorySegment> content(int i, int secret) {
        return StoreDriver.block(1000L * secret + i, shape(i));
    }

    private final class Member {
        private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        private final int number;
        private int secret;
        private BlockStore store;

        Member(int number) {
            this.number = number;
            store = open();
        }

        private StoreConfig config() {
            return StoreDriver.config(folder.resolve("root"))
                    .withKey(secrets.get(secret))
                    .withQuota(QUOTA, number == 0 ? 0.8 : 1, 1)
                    .withMedium(
                            Durability.values()[number % 3],
                            number == 1 ? DirectIo.AUTO : DirectIo.OFF);
        }

        private BlockStore open() {
            return BlockStore.open(
                    config(),
                    calls,
                    new Recency(
                            1000,
                            () -> Instant.now().plus(Duration.ofDays(clockDays.get())),
                            System::nanoTime));
        }

        BlockResult save(int i) {
            return new StoreDriver(store).save(key(i), content(i, secret));
        }

        /// Checks every byte of what it gets; the parts that are not wanted it does not get.
        BlockResult load(int i, SplittableRandom random) {
            var target = new ArrayList<>(StoreDriver.empty(shape(i)));
            var wanted = new boolean[target.size()];
            for (int part = 0; part < wanted.length; part++) {
                wanted[part] = wanted.length == 1 || random.nextInt(4) > 0;
                if (!wanted[part]) {
                    target.set(part, target.get(part).asReadOnly());
                }
            }
            var result = new StoreDriver(store).load(key(i), target);
            if (result == BlockResult.Done.LOADED) {
                var expected = content(i, secret);
                for (int part = 0; part < wanted.length; part++) {
                    if (wanted[part]) {
                        assertThat(target.get(part).mismatch(expected.get(part)))
                                .as("first wrong byte of part %d of block %d", part, i)
                                .isNegative();
                    }
                }
            }
            return result;
        }

        /// Dies before the file call of that number: from then on it can do nothing, not even tidy
        /// up.
        void crash(int i, long call) {
            long fatal = calls.count() + call;
            calls.hook = (_, count) -> count >= fatal ? -Errno.EIO : 0;
            var unused = save(i);
            store.close();
            calls.hook = FaultInjectingCalls.PASS;
        }
    }

    private Path file(Member member, int i) {
        return member.store.core().folder().file(key(i).digest());
    }

    private void makeSecrets() throws IOException {
        secrets.add(FleetKey.NONE);
        for (var word : List.of("first secret of a fleet", "second secret of a fleet")) {
            var file = Files.writeString(folder.resolve("secret-" + secrets.size()), word);
            secrets.add(FleetKey.of(FleetSecret.read(file)));
        }
    }

    @Test
    @Timeout(600)
    void everyByteIsRightWhateverHappensInWhichOrder() throws Exception {
        makeSecrets();
        run(System.nanoTime(), 400);
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void everyByteIsRightForLong() throws Exception {
        makeSecrets();
        for (int i = 0; i < Integer.getInteger("kvferry.soak.seeds", 200); i++) {
            run(System.nanoTime(), 1000);
        }
    }

    private void run(long seed, int steps) throws Exception {
        var random = new SplittableRandom(seed);
        var members = new ArrayList<Member>();
        String done = "";
        try {
            for (int i = 0; i < PROCESSES; i++) {
                members.add(new Member(i));
            }
            for (int step = 0; step < steps; step++) {
                done = step(random, members);
                if (step % 25 == 0) {
                    check(members);
                }
            }
            check(members);
        } catch (Throwable e) {
            throw new AssertionError("seed " + seed + ", after: " + done, e);
        } finally {
            members.forEach(member -> member.store.close());
        }
    }

    private String step(SplittableRandom random, List<Member> members) throws Exception {
        var member = members.get(random.nextInt(members.size()));
        int i = random.nextInt(KEYS);
        int what = random.nextInt(100);
        if (what < 35) {
            var result = member.save(i);
            assertThat(result).isInstanceOf(BlockResult.Done.class);
            if (result == BlockResult.Done.STORED) {
                damaged.remove(file(member, i));
            }
            return "save " + i;
        }
        if (what < 70) {
            Path file = file(member, i);
            try (var kept = new KeptFile(file, folder.resolve("kept"))) {
                var result = member.load(i, random);
                if (result.failedWith(ErrorCode.CORRUPT) && !damaged.contains(file)) {
                    fail(
                            "%s by member %d: %s",
                            result,
                            member.number,
                            kept.describe(key(i), content(i, member.secret)));
                } else if (!result.failedWith(ErrorCode.CORRUPT)
                        && result != BlockResult.Done.LOADED) {
                    assertThat(result.failedWith(ErrorCode.MISS)).as("%s", result).isTrue();
                } else {
                    damaged.remove(file); // it is whole, or was deleted
                }
            }
            return "load " + i;
        }
        if (what < 80) {
            int count =
                    new StoreDriver(member.store)
                            .locate(
                                    IntStream.range(i, KEYS)
                                            .mapToObj(InterleavingTest::key)
                                            .toList());
            assertThat(count).isNotNegative();
            return "locate " + i;
        }
        if (what < 87) {
            member.crash(i, random.nextInt(1, 14));
            if (random.nextInt(3) == 0) {
                member.secret = random.nextInt(secrets.size());
            }
            member.store = member.open();
            return "crash at " + i;
        }
        if (what < 95) {
            var files = BlockFiles.under(folder.resolve("root"));
            if (!files.isEmpty()) {
                try {
                    damage(files.get(random.nextInt(files.size())), random);
                } catch (NoSuchFileException _) {
                    // a store evicted it meanwhile, on its own
                }
            }
            return "damage";
        }
        if (what < 96) {
            var files = BlockFiles.under(folder.resolve("root"));
            if (!files.isEmpty()) {
                addFileOfOtherVersion(files.get(random.nextInt(files.size())), random);
            }
            return "a file of another version";
        }
        if (what < 98) {
            clockDays.addAndGet(random.nextInt(-5, 6));
            return "clock";
        }
        if (what == 98) {
            member.store.clear();
            return "clear";
        }
        if (Files.exists(folder.resolve("root"))) {
            Files.move(folder.resolve("root"), folder.resolve("gone-" + deletedRoots++));
        }
        return "delete the root";
    }

    private void damage(Path file, SplittableRandom random) throws IOException {
        byte[] bytes = Files.readAllBytes(file);
        damaged.add(file);
        switch (random.nextInt(3)) {
            case 0 -> Files.delete(file);
            case 1 -> Files.write(file, Arrays.copyOf(bytes, random.nextInt(bytes.length)));
            default -> {
                bytes[random.nextInt(bytes.length)] ^= 1; // perhaps in the padding
                Files.write(file, bytes);
            }
        }
    }

    /// As a process leaves it whose files have another format: under a name that no block of these
    /// processes has.
    private static void addFileOfOtherVersion(Path like, SplittableRandom random)
            throws IOException {
        byte[] bytes;
        try {
            bytes = Files.readAllBytes(like);
        } catch (NoSuchFileException _) {
            return; // evicted meanwhile
        }
        if (bytes.length > MAGIC_END) {
            bytes[MAGIC_END]--;
        }
        String name = like.getFileName().toString();
        String other = HexFormat.of().toHexDigits(random.nextLong());
        Files.write(
                like.resolveSibling(name.charAt(0) + other.substring(1) + name.substring(16)),
                bytes);
    }

    /// After a look at the folder each knows what is there, and together they are within the quota;
    /// nothing is left of crashes but temporary files.
    private void check(List<Member> members) {
        long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
        do { // an eviction waits for those of the others, but not for ever
            for (var member : members) {
                member.store.core().restoreFolder(limit);
                member.store.core().scan();
                member.store.core().evictor().evictToLowWatermark();
            }
        } while (onDisk(members) > QUOTA && limit - System.nanoTime() > 0);
        for (var member : members) {
            member.store.core().scan();
        }
        assertThat(onDisk(members)).isLessThanOrEqualTo(QUOTA);
        for (var member : members) {
            StoreDriver.assertReservesNothing(member.store);
        }
    }

    private static long onDisk(List<Member> members) {
        return StoreDriver.diskBytes(members.getFirst().config());
    }

    /// The same by all at the same time; nobody damages anything, so nothing may be found damaged.
    @Test
    @Timeout(600)
    void everyByteIsRightWhenAllWorkAtOnce() throws Exception {
        makeSecrets();
        long seed = System.nanoTime();
        var members = new ArrayList<Member>();
        try (var pool = Executors.newFixedThreadPool(PROCESSES)) {
            for (int i = 0; i < PROCESSES; i++) {
                var member = new Member(i);
                members.add(member);
            }
            var work = new ArrayList<Callable<Boolean>>();
            for (var member : members) {
                work.add(() -> {
                    var random = new SplittableRandom(seed + member.number);
                    for (int step = 0; step < 150; step++) {
                        int i = random.nextInt(KEYS);
                        var result = random.nextBoolean() ? member.save(i) : member.load(i, random);
                        assertThat(
                                        result instanceof BlockResult.Done
                                                || result.failedWith(ErrorCode.MISS))
                                .as("block %d, seed %d: %s", i, seed, result)
                                .isTrue();
                    }
                    return true;
                });
            }
            for (var end : pool.invokeAll(work)) {
                end.get();
            }
            check(members);
        } finally {
            members.forEach(member -> member.store.close());
        }
    }
}
