// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.mooncake.Iperf;
import io.kvferry.benchmarks.mooncake.LimitProgram;
import io.kvferry.benchmarks.mooncake.Rounds;
import io.kvferry.benchmarks.mooncake.Run;
import io.kvferry.benchmarks.mooncake.Shape;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Puts and gets by one thread, through an owner process and in-process, alternating with upper
/// bounds (memory copy, loopback) and other systems (Mooncake, Redis). Rates are by wall-clock
/// time.
@SuppressWarnings("try") // an interrupt ends the benchmark
final class OwnerBandwidth implements AutoCloseable {
    private static final int LARGEST = 4 << 20;
    private static final long POOL = 4L * Contender.BATCH * LARGEST;
    private static final long SOCKET_SHARE = 2 << 20; // of a lane of the transfer engine
    private static final long WARM_UP_NANOS = TimeUnit.SECONDS.toNanos(2);
    private static final StoreIdentity IDENTITY = new StoreIdentity("", "bench", "bytes");
    private static final String EMBEDDED = "embedded";
    private static final String OWNER = "owner";
    private static final String WITHIN_HOST = OWNER + ", within the host";

    private final List<AutoCloseable> open = new ArrayList<>();
    private final List<Contender> contenders = new ArrayList<>();
    private final Optional<LimitProgram> limit;
    private final Optional<Path> iperf;
    private final Path folder = Files.createTempDirectory("kvferry-owner");

    private OwnerBandwidth() throws Exception {
        iperf = Iperf.find();
        limit = LimitProgram.start((long) Contender.BATCH * LARGEST, LimitProgram.Pages.HUGE);
        limit.ifPresent(open::add);
    }

    static void run(boolean quick, int[] kibibytes) throws Exception {
        try (var bandwidth = new OwnerBandwidth()) {
            bandwidth.start();
            bandwidth.measure(kibibytes, quick ? 5 : 9, quick ? 256L << 20 : 512L << 20);
        }
    }

    private void start() throws Exception {
        embedded(EMBEDDED, false);
        embedded(EMBEDDED + ", checksums", true);
        var owner = new OwnerJvm(String.valueOf(POOL), List.of(), folder.resolve("owner.log"));
        open.add(owner);
        add(user(WITHIN_HOST, owner, Map.of()));
        add(user(OWNER + ", TCP", owner, Map.of("shared-memory", "false")));
        var mooncake = MooncakeStore.start(POOL);
        if (mooncake.isPresent()) {
            add(new MooncakeContender(mooncake.get(), LARGEST));
        }
        var redis = RedisContender.start();
        if (redis.isPresent()) {
            add(redis.get());
        }
    }

    private void embedded(String name, boolean checksums) {
        var store = EmbeddedStore.open(StoreConfig.DEFAULT.withChecksums(checksums));
        open.add(store);
        store.mount("a", POOL);
        add(new StoreContender(name, store.client(IDENTITY), LARGEST, () -> 0));
    }

    private static Contender user(String name, OwnerJvm owner, Map<String, String> engine) {
        var config = RemoteStoreConfig.of(owner.address()).withEngine(engine);
        return new StoreContender(
                name, RemoteStore.open(config, IDENTITY, true), LARGEST, owner::cpuNanos);
    }

    private void add(Contender contender) {
        open.add(contender);
        contenders.add(contender);
    }

    private void measure(int[] kibibytes, int rounds, long bytes) throws Exception {
        var table =
                new Table(
                        "32 objects of",
                        "call",
                        "store",
                        "GB/s",
                        "limit GB/s",
                        "of limit: min, median, max",
                        "CPU ms/GB",
                        "limit's",
                        "times Mooncake: min, median, max",
                        "times Redis");
        for (int kib : kibibytes) {
            int size = Math.min(LARGEST, kib << 10);
            int calls = Math.toIntExact(Math.max(2, bytes / ((long) size * Contender.BATCH)));
            for (Contender contender : contenders) {
                warmUp(contender, size);
            }
            var puts = new Turns();
            var gets = new Turns();
            for (int round = 0; round < rounds; round++) {
                Optional<Run> stream = stream();
                puts.limits(size, calls, stream, Operation.WRITE);
                gets.limits(size, calls, stream, Operation.READ);
                for (Contender contender : contenders) {
                    puts.add(contender, contender.put(size, calls));
                    gets.add(contender, contender.get(size, calls));
                }
            }
            puts.rows(table, size, "put");
            gets.rows(table, size, "get");
        }
        table.print();
        System.out.println(
                "Limit: of the embedded store and of an owner within the host a copy of as many bytes by"
                        + " one C thread, else the better of limit.c over sockets and one stream of iperf3.\nAn owner has"
                        + " every object summed (CRC32C) when it is put, and compared when it is"
                        + " read. CPU: processor time of both sides.");
    }

    private static void warmUp(Contender contender, int size) throws Exception {
        for (long until = System.nanoTime() + WARM_UP_NANOS; System.nanoTime() < until; ) {
            contender.put(size, 1);
            contender.get(size, 1);
        }
    }

    /// One stream of iperf3, for a second.
    private Optional<Run> stream() throws Exception {
        return iperf.isEmpty()
                ? Optional.empty()
                : Optional.of(new Run(Iperf.rate(iperf.get(), 1, 1) * 1e9, 1_000_000_000, 0));
    }

    /// The rounds of one call.
    private final class Turns {
        private final Map<String, Rounds> stores = new LinkedHashMap<>();
        private final Rounds copies = new Rounds();
        private final Rounds sockets = new Rounds();

        void limits(int size, int calls, Optional<Run> stream, Operation operation)
                throws Exception {
            Optional<Run> best = stream;
            if (limit.isPresent()) {
                var shape = new Shape(operation, size, Contender.BATCH, 1);
                copies.add(limit.get().copy(shape, 1, calls));
                int lanes = shape.lanes(EngineConfig.defaults().mostSlices(), SOCKET_SHARE);
                Run moved = limit.get().move(shape, lanes, calls);
                best =
                        best.filter(other -> other.rate() > moved.rate())
                                .or(() -> Optional.of(moved));
            }
            best.ifPresent(sockets::add);
        }

        void add(Contender contender, Run run) {
            stores.computeIfAbsent(contender.name(), _ -> new Rounds()).add(run);
        }

        void rows(Table table, int size, String call) {
            stores.forEach((name, rounds) -> {
                boolean ours = name.startsWith(EMBEDDED) || name.startsWith(OWNER);
                boolean copied = name.startsWith(EMBEDDED) || name.equals(WITHIN_HOST);
                var bound = copied ? copies : sockets;
                table.rowNow(
                        (size >> 10) + " KiB",
                        call,
                        name,
                        rounds.median(Run::rate),
                        bound.median(Run::rate),
                        rounds.ratios(bound),
                        rounds.median(Run::cpuMillisPerGb),
                        bound.median(Run::cpuMillisPerGb),
                        ours ? rounds.ratios(of(MooncakeContender.NAME)) : "-",
                        ours ? rounds.ratios(of(RedisContender.NAME)) : "-");
            });
        }

        private Rounds of(String name) {
            return stores.getOrDefault(name, new Rounds());
        }
    }

    @Override
    public void close() throws Exception {
        try {
            for (AutoCloseable each : open.reversed()) {
                each.close();
            }
        } finally {
            Folders.delete(folder);
        }
    }
}
