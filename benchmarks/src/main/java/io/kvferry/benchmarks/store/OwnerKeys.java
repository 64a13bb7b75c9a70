// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.mooncake.Rounds;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/// Keys per second that users of an owner process reach: lookups, descriptors, and puts of 64 bytes
/// (start, the bytes, end), one by one and in batches, in turns with users of a real Mooncake
/// store. Of Mooncake a put is its start and its end, without bytes. Users of the owner are threads
/// of one process, Mooncake's have a process in Python each.
@SuppressWarnings("try") // an interrupt ends the benchmark
final class OwnerKeys {
    private static final int BATCH = 128;
    private static final int FILL = 1024;
    private static final int MOST_CLIENTS = 4;
    private static final int ROUNDS = 5;
    private static final long WARM_UP_NANOS = TimeUnit.SECONDS.toNanos(6);
    private static final long WARM_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

    private OwnerKeys() {}

    private enum Call {
        EXISTS,
        DESCRIBE,
        PUTS;

        String word() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /// One user; a thread of its own drives it.
    private interface User extends AutoCloseable {
        /// Asks for random keys of the first `keys` ones for so long.
        ///
        /// @return keys per second
        double ask(Call call, int keys, int batch, long nanos) throws Exception;

        /// Removes what was put on top of the keys.
        void clear();

        @Override
        void close() throws Exception;
    }

    static void run(int[] sizes, boolean quick) throws Exception {
        var table =
                new Table(
                        "keys",
                        "clients",
                        "call",
                        "keys per call",
                        "thousand keys/s",
                        "CPU us/key, both sides",
                        "Mooncake's thousand keys/s",
                        "times Mooncake: min, median, max");
        for (int size : sizes) {
            measure(table, size, quick);
        }
        table.print();
    }

    private static void measure(Table table, int size, boolean quick) throws Exception {
        long nanos = TimeUnit.MILLISECONDS.toNanos(quick ? 200 : 500);
        List<String> keys = KeyCosts.keys(size);
        Path folder = Files.createTempDirectory("kvferry-owner");
        long pool = Math.max(1 << 24, 4L * size * KeyCosts.VALUE);
        var mooncake = MooncakeStore.start(Math.max(1L << 28, pool));
        try (var owner =
                        new OwnerJvm(String.valueOf(pool), List.of(), folder.resolve("owner.log"));
                var threads = Executors.newFixedThreadPool(MOST_CLIENTS)) {
            var ours = new ArrayList<User>();
            var theirs = new ArrayList<User>();
            try {
                for (int i = 0; i < MOST_CLIENTS; i++) {
                    ours.add(new OwnerUser(owner.address(), keys, i));
                    if (mooncake.isPresent()) {
                        theirs.add(new MooncakeUser(mooncake.get().user(1 << 20)));
                    }
                }
                ((OwnerUser) ours.getFirst()).fill();
                if (mooncake.isPresent()) {
                    ((MooncakeUser) theirs.getFirst()).user.ask("fill " + size);
                }
                warmUp(size, threads, ours, theirs);
                for (int clients : new int[] {1, 2, MOST_CLIENTS}) {
                    for (var call : Call.values()) {
                        for (int batch : new int[] {1, BATCH}) {
                            var one = new Cell(size, clients, call, batch, nanos);
                            row(table, one, threads, ours, theirs, owner);
                        }
                    }
                }
            } finally {
                for (User user : ours) {
                    user.close();
                }
                for (User user : theirs) {
                    user.close();
                }
            }
        } finally {
            if (mooncake.isPresent()) {
                mooncake.get().close();
            }
            Folders.delete(folder);
        }
    }

    /// Until the JVMs have compiled what they run: else the first rows are of cold code.
    private static void warmUp(
            int size, ExecutorService threads, List<User> ours, List<User> theirs)
            throws Exception {
        for (long until = System.nanoTime() + WARM_UP_NANOS; System.nanoTime() < until; ) {
            for (var call : Call.values()) {
                for (int batch : new int[] {1, BATCH}) {
                    rate(new Cell(size, MOST_CLIENTS, call, batch, WARM_NANOS), threads, ours);
                }
            }
            ours.forEach(User::clear);
        }
        for (var call : Call.values()) {
            if (!theirs.isEmpty()) {
                rate(new Cell(size, MOST_CLIENTS, call, BATCH, WARM_NANOS), threads, theirs);
            }
        }
    }

    private record Cell(int keys, int clients, Call call, int batch, long nanos) {}

    private static void row(
            Table table,
            Cell cell,
            ExecutorService threads,
            List<User> ours,
            List<User> theirs,
            OwnerJvm owner)
            throws Exception {
        var rates = new double[ROUNDS];
        var others = new double[ROUNDS];
        double cpu = 0;
        double asked = 0;
        rate(cell, threads, ours); // warm
        ours.forEach(User::clear);
        for (int round = 0; round < ROUNDS; round++) {
            long before = ProcessCost.cpuSoFar() + owner.cpuNanos();
            long begin = System.nanoTime();
            rates[round] = rate(cell, threads, ours);
            cpu += ProcessCost.cpuSoFar() + owner.cpuNanos() - before;
            asked += rates[round] * (System.nanoTime() - begin) / 1e9;
            ours.forEach(User::clear);
            others[round] = theirs.isEmpty() ? Double.NaN : rate(cell, threads, theirs);
        }
        var ratios = new double[ROUNDS];
        Arrays.setAll(ratios, i -> rates[i] / others[i]);
        Arrays.sort(rates);
        Arrays.sort(others);
        table.rowNow(
                cell.keys,
                cell.clients,
                cell.call,
                cell.batch,
                rates[ROUNDS / 2] / 1e3,
                cpu / 1e3 / asked,
                theirs.isEmpty() ? "-" : others[ROUNDS / 2] / 1e3,
                theirs.isEmpty() ? "-" : Rounds.spread(ratios));
    }

    /// Of the first users together.
    private static double rate(Cell cell, ExecutorService threads, List<User> users)
            throws Exception {
        var work = new ArrayList<Callable<Double>>();
        for (User user : users.subList(0, cell.clients)) {
            work.add(() -> user.ask(cell.call, cell.keys, cell.batch, cell.nanos));
        }
        double sum = 0;
        for (var done : threads.invokeAll(work)) {
            sum += done.get();
        }
        return sum;
    }

    private static final class OwnerUser implements User {
        private final RemoteStore store;
        private final List<String> keys;
        private final SplittableRandom random;
        private final Arena arena = Arena.ofShared();
        private final MemorySegment value = arena.allocate(KeyCosts.VALUE, 64);
        private final StoreBatch batch = new StoreBatch();
        private final int number;
        private int calls;

        OwnerUser(String address, List<String> keys, int number) {
            this.store = RemoteStore.open(RemoteStoreConfig.of(address), KeyCosts.IDENTITY, true);
            this.keys = keys;
            this.random = new SplittableRandom(number);
            this.number = number;
            store.register(value);
        }

        void fill() {
            for (int from = 0; from < keys.size(); from += FILL) {
                put(keys.subList(from, Math.min(keys.size(), from + FILL)));
            }
        }

        private void put(List<String> some) {
            batch.clear();
            some.forEach(key -> batch.add(key).buffer(value));
            var results = new int[some.size()];
            store.put(batch, PutOptions.DEFAULT, results);
            check(results, 0);
        }

        private static void check(int[] results, int wanted) {
            for (int result : results) {
                if (result != wanted) {
                    throw new IllegalStateException(result + " is not " + wanted);
                }
            }
        }

        @Override
        public double ask(Call call, int count, int size, long nanos) {
            var results = new int[size];
            var found = new @Nullable ReplicaDescriptor[size];
            long done = 0;
            long spent = 0;
            while (spent < nanos) {
                int from = random.nextInt(count - size + 1);
                List<String> some =
                        call == Call.PUTS ? fresh(size) : keys.subList(from, from + size);
                long begin = System.nanoTime();
                switch (call) {
                    case EXISTS -> store.exists(some, true, results);
                    case DESCRIBE -> store.describe(some, found, results);
                    case PUTS -> put(some);
                }
                spent += System.nanoTime() - begin;
                done += size;
                check(results, call == Call.EXISTS ? 1 : 0);
            }
            return done * 1e9 / spent;
        }

        @Override
        public void clear() {
            if (calls > 0) {
                calls = 0;
                store.removeByRegex("put-" + number + "-.*", true);
            }
        }

        private List<String> fresh(int size) {
            calls++;
            var some = new ArrayList<String>(size);
            for (int i = 0; i < size; i++) {
                some.add("put-" + number + "-" + calls + "-" + i);
            }
            return some;
        }

        @Override
        public void close() {
            store.unregister(value);
            store.close();
            arena.close();
        }
    }

    private record MooncakeUser(MooncakeStore.Answerer user) implements User {
        @Override
        public double ask(Call call, int keys, int batch, long nanos) throws Exception {
            long[] answer = user.ask(call.word() + " " + keys + " " + batch + " " + nanos);
            return answer[0] * 1e9 / answer[1];
        }

        @Override
        public void clear() {
            // removed by the script
        }

        @Override
        public void close() throws Exception {
            user.close();
        }
    }
}
