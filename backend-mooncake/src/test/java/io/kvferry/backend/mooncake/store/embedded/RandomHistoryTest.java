// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.SplittableRandom;

/// Random histories of puts, reads, removals, evictions, segments that come and go, and passing
/// time: every answer is that of [StoreModel].
class RandomHistoryTest {
    private static final long SIZE = 128;
    private static final int KEYS = 40;
    private static final int STEPS = 400;
    private static final List<StoreIdentity> IDENTITIES =
            List.of(
                    new StoreIdentity("t1", "m", "l"),
                    new StoreIdentity("t2", "m", "l"),
                    new StoreIdentity("t1", "m", "l2"));

    @Test
    void everyAnswerIsThatOfTheModel() {
        run(400);
    }

    @Test
    @Tag("soak")
    @Timeout(1200)
    void everyAnswerIsThatOfTheModelInTwentyThousandHistories() {
        run(20_000);
    }

    /// The same over a disk tier, with restarts in between.
    @Test
    void everyAnswerIsThatOfTheModelOverADiskTier() throws IOException {
        runOverDisk(12);
    }

    @Test
    @Tag("soak")
    @Timeout(1200)
    void everyAnswerIsThatOfTheModelOverADiskTierInManyHistories() throws IOException {
        runOverDisk(1000);
    }

    private static void runOverDisk(int histories) throws IOException {
        Path memory = Path.of("/dev/shm"); // a disk takes its time to sync so many small files
        Path base =
                Files.isWritable(memory) ? memory : Path.of(System.getProperty("java.io.tmpdir"));
        long first = Long.getLong("kvferry.store.seed", 1);
        for (long seed = first; seed < first + histories; seed++) {
            Path folder = Files.createTempDirectory(base, "kvferry-history");
            try (var history = new History(seed, folder)) {
                history.run();
            } catch (Throwable e) {
                throw new AssertionError("history with -Dkvferry.store.seed=" + seed, e);
            } finally {
                try (var all = Files.walk(folder)) {
                    all.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
                }
            }
        }
    }

    private static void run(int histories) {
        long first = Long.getLong("kvferry.store.seed", 1);
        for (long seed = first; seed < first + histories; seed++) {
            try (var history = new History(seed, null)) {
                history.run();
            } catch (Throwable e) {
                throw new AssertionError("history with -Dkvferry.store.seed=" + seed, e);
            }
        }
    }

    private static final class History implements AutoCloseable {
        private final SplittableRandom random;
        private final @Nullable Path folder;
        private StoreModel model;
        private SteppedStore stepped;
        private EmbeddedStore store;
        private final EmbeddedClient[] clients = new EmbeddedClient[6];
        private final List<Open> open = new ArrayList<>();
        private final Arena arena = Arena.ofConfined();
        private final MemorySegment value = arena.allocate(SIZE);
        private int content = 1;

        /// @param put number of the store's; the model's is `modelled`
        private record Open(StoreModel.Key key, int client, long put, long modelled) {}

        /// @param folder of a disk tier; null without
        History(long seed, @Nullable Path folder) {
            this.folder = folder;
            random = new SplittableRandom(seed);
            model = new StoreModel(new SplittableRandom(seed * 31));
            stepped = stepped(seed * 31);
            store = stepped.store;
            begin();
        }

        private SteppedStore stepped(long choice) {
            var choices = new SplittableRandom(choice);
            var segments = new SegmentTable(choices::nextInt);
            if (folder == null) {
                return new SteppedStore(config -> config, segments);
            }
            var tier =
                    TierConfig.of(folder, 1 << 30)
                            .withStaging(64 << 10)
                            .withIo(
                                    DirectIo.OFF,
                                    Duration.ZERO,
                                    Duration.ofSeconds(60),
                                    Duration.ofSeconds(10));
            return new SteppedStore(
                    config -> config,
                    segments,
                    DiskTier.open(tier, SegmentMemory.PRIVATE, FileCalls.ofPlatform()));
        }

        private void begin() {
            for (int i = 0; i < clients.length; i++) {
                clients[i] = store.client(IDENTITIES.get(i % IDENTITIES.size()));
            }
            mount("a", 10 + random.nextInt(20));
            if (random.nextBoolean()) {
                mount("b", 5 + random.nextInt(20));
            }
        }

        private void restart() {
            long choice = random.nextLong();
            stepped.close();
            stepped = stepped(choice);
            store = stepped.store;
            model = model.restarted(new SplittableRandom(choice));
            open.clear();
            begin();
        }

        private void offload() {
            while (store.offloads.step(true)) {
                // the next bucket
            }
            model.offload();
        }

        void run() {
            for (int step = 0; step < STEPS; step++) {
                step();
                if (folder != null) {
                    offload();
                    if (random.nextInt(60) == 0) {
                        restart();
                    }
                }
                assertThat(store.keyCount()).isEqualTo(model.objects());
                assertThat(store.usedBytes()).isEqualTo(model.usedSlots() * SIZE);
            }
            for (var key : model.keys()) {
                read(key, key.identity());
            }
            stepped.close();
            assertThat(store.keyCount()).isZero();
            assertThat(store.usedBytes()).isZero();
        }

        private void step() {
            int client = random.nextInt(clients.length);
            var key = new StoreModel.Key(client % IDENTITIES.size(), "k" + random.nextInt(KEYS));
            switch (random.nextInt(20)) {
                case 0, 1, 2, 3, 4 -> put(key, client);
                case 5, 6 -> start(key, client);
                case 7, 8 -> endOne();
                case 9, 10 -> read(key, client);
                case 11, 12, 13 -> exists(key, client);
                case 14 -> {
                    boolean force = random.nextBoolean();
                    assertThat(clients[client].remove(key.key(), force))
                            .isEqualTo(model.remove(key, force));
                }
                case 15 -> rarely(client);
                case 16, 17 -> pass();
                default -> assertThat(store.tick()).isEqualTo(model.tick());
            }
        }

        private void pass() {
            long nanos =
                    switch (random.nextInt(12)) {
                        case 0 -> 31 * StoreModel.SECOND;
                        case 1 -> 600 * StoreModel.SECOND;
                        case 2, 3 -> 10 * StoreModel.SECOND;
                        default -> random.nextLong(3 * StoreModel.SECOND);
                    };
            model.now += nanos;
            stepped.pass(Duration.ofNanos(nanos));
        }

        private PutOptions options() {
            var options =
                    switch (random.nextInt(8)) {
                        case 0 -> PutOptions.DEFAULT.hardPinned();
                        case 1, 2 -> PutOptions.DEFAULT.softPinned(Duration.ofSeconds(60));
                        default -> PutOptions.DEFAULT;
                    };
            return random.nextInt(3) == 0 ? options.preferring("b", "nowhere", "c") : options;
        }

        private @Nullable String group() {
            return random.nextInt(3) == 0 ? "g" + random.nextInt(4) : null;
        }

        private void put(StoreModel.Key key, int client) {
            var options = options();
            var group = group();
            int number = content++;
            value.fill((byte) 0);
            value.set(ValueLayout.JAVA_INT, 0, number);
            value.set(ValueLayout.JAVA_INT, SIZE - 4, number);
            var results = new int[1];
            clients[client].put(
                    new StoreBatch().add(key.key(), group).buffer(value), options, results);
            int code = model.start(key, client, options, group, number);
            if (code == 0) {
                code = model.end(key, client, model.putOf(key));
            }
            assertThat(results[0]).isEqualTo(code == -705 ? 0 : code);
        }

        private void start(StoreModel.Key key, int client) {
            var options = options();
            var group = group();
            int number = content++;
            var started = new PutSessions.@Nullable Started[1];
            var results = new int[1];
            var groups = new ArrayList<@Nullable String>();
            groups.add(group);
            clients[client].putStart(
                    List.of(key.key()), new long[] {SIZE}, groups, options, started, results);
            assertThat(results[0]).isEqualTo(model.start(key, client, options, group, number));
            var put = started[0];
            if (put != null) {
                put.memory().set(ValueLayout.JAVA_INT, 0, number);
                put.memory().set(ValueLayout.JAVA_INT, SIZE - 4, number);
                open.add(new Open(key, client, put.number(), model.putOf(key)));
            }
        }

        /// Ends or revokes a put, now and then as somebody else, or one that was replaced.
        private void endOne() {
            if (open.isEmpty()) {
                return;
            }
            int at = random.nextInt(open.size());
            Open put = random.nextInt(4) == 0 ? open.get(at) : open.remove(at);
            int client =
                    random.nextInt(5) == 0
                            ? (put.client() + IDENTITIES.size()) % clients.length
                            : put.client();
            if (random.nextInt(3) == 0) {
                assertThat(clients[client].putRevoke(put.key().key(), put.put()))
                        .isEqualTo(model.revoke(put.key(), client, put.modelled()));
            } else {
                assertThat(clients[client].putEnd(put.key().key(), put.put(), 0))
                        .isEqualTo(model.end(put.key(), client, put.modelled()));
            }
        }

        private void read(StoreModel.Key key, int client) {
            value.fill((byte) 0xff);
            var results = new long[1];
            clients[client].get(new StoreBatch().add(key.key()).buffer(value), results);
            int expected = model.get(key);
            assertThat(results[0]).isEqualTo(expected < 0 ? expected : SIZE);
            if (expected >= 0) {
                assertThat(value.get(ValueLayout.JAVA_INT, 0)).isEqualTo(expected);
                assertThat(value.get(ValueLayout.JAVA_INT, SIZE - 4)).isEqualTo(expected);
            }
        }

        private void exists(StoreModel.Key key, int client) {
            boolean lease = random.nextInt(3) > 0;
            var results = new int[1];
            clients[client].exists(List.of(key.key()), lease, results);
            assertThat(results[0]).isEqualTo(model.exists(key, lease));
        }

        private void rarely(int client) {
            switch (random.nextInt(12)) {
                case 0 -> {
                    boolean force = random.nextBoolean();
                    assertThat(clients[client].removeAll(force))
                            .isEqualTo(model.removeAll(client % IDENTITIES.size(), force));
                }
                case 1, 2 -> {
                    var name = random.nextBoolean() ? "a" : "b";
                    store.unmount(name);
                    model.unmount(name);
                    mount(name, 5 + random.nextInt(20));
                }
                case 3, 4, 5 -> { // a client that mounts, and later crashes: it stops pinging
                    if (!store.segmentNames().contains("c")) {
                        int slots = 5 + random.nextInt(20);
                        clients[client].mount("c", slots * SIZE + 1024 - slots * SIZE % 1024);
                        model.watch(client);
                        model.mount(
                                "c",
                                (int) ((slots * SIZE + 1024 - slots * SIZE % 1024) / SIZE),
                                client);
                    }
                }
                default -> assertThat(clients[client].ping()).isEqualTo(model.ping(client));
            }
        }

        private void mount(String name, int slots) {
            long bytes = Math.max(1024, slots * SIZE);
            store.mount(name, bytes);
            model.mount(name, (int) (bytes / SIZE), -1);
        }

        @Override
        public void close() {
            stepped.close();
            arena.close();
        }
    }
}
