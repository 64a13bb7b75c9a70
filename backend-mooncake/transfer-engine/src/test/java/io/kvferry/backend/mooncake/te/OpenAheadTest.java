// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/// Peers are looked up and mapped in advance while others write to them, and while they end, are
/// killed and restart on the same few ports. A live peer gets all bytes, a dead one none, every
/// lookup is answered, and no mapping of a dead peer remains.
class OpenAheadTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    /// So much that its pages are touched in the background.
    private static final long BYTES = 40 << 20;

    private static final int SLOT = 96 << 10;

    /// Of several pieces, between which a copy may be ended.
    private static final int LARGE = 18 << 20;

    private static final int PORTS = 4;
    private static final int WRITERS = 2;
    private static final int ASKERS = 2;
    private static final byte REUSED = 0x5A;

    /// How a question to a peer that comes and goes may fail.
    private static final Set<ErrorCode> UNANSWERED =
            EnumSet.of(ErrorCode.PEER_LOST, ErrorCode.PROTOCOL);

    @TempDir Path folder;

    private final Set<String> begun = ConcurrentHashMap.newKeySet();
    private final Set<String> found = ConcurrentHashMap.newKeySet();
    private final AtomicInteger written = new AtomicInteger();
    private final AtomicInteger refused = new AtomicInteger();
    private volatile boolean over;

    /// Ports at which one peer after the other lives.
    private static final class Place {
        private final int first;
        volatile @Nullable Life current;

        Place() throws IOException {
            try (var free = new ServerSocket(0)) {
                first = Math.min(free.getLocalPort(), 65_535 - PORTS);
            }
        }

        Map<String, String> settings(Path folder, boolean shared) {
            return Map.of(
                    "min-port", String.valueOf(first),
                    "max-port", String.valueOf(first + PORTS - 1),
                    "shared-memory", String.valueOf(shared),
                    "shared-memory-dir", folder.toString());
        }
    }

    /// A peer from its start to its end.
    private static final class Life {
        final String name;
        final String incarnation;
        final long address;
        final long token;

        /// Null in a process of its own.
        final @Nullable MemorySegment memory;

        /// Held while somebody looks at the memory.
        final ReentrantReadWriteLock mapped = new ReentrantReadWriteLock();

        volatile boolean ending;

        Life(
                String name,
                String incarnation,
                long address,
                long token,
                @Nullable MemorySegment memory) {
            this.name = name;
            this.incarnation = incarnation;
            this.address = address;
            this.token = token;
            this.memory = memory;
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Timeout(300)
    void whatLivesIsReachedAndNothingOfTheDeadIsLeft(boolean shared) throws Exception {
        run(System.nanoTime(), shared, 10, 3);
    }

    @Test
    @Tag("soak")
    @Timeout(3_600)
    void whatLivesIsReachedOverThousandsOfLives() throws Exception {
        run(System.nanoTime(), true, 1_500, 150);
        over = false;
        run(System.nanoTime(), false, 1_500, 150);
    }

    private void run(long seed, boolean shared, int lives, int kills) throws Exception {
        var settings =
                Map.of(
                        "shared-memory", String.valueOf(shared),
                        "shared-memory-dir", folder.toString());
        var places = List.of(new Place(), new Place(), new Place());
        try (var here = JavaTransferEngine.start(EngineConfig.from(settings));
                var threads = Executors.newCachedThreadPool()) {
            var others = new ArrayList<Future<Integer>>();
            try {
                for (int i = 0; i < ASKERS; i++) {
                    var random = new Random(seed + i);
                    others.add(threads.submit(() -> ask(here, places, random)));
                }
                for (int i = 0; i < WRITERS; i++) {
                    int writer = i;
                    var random = new Random(seed + 10 + i);
                    others.add(threads.submit(() -> write(here, places, writer, random)));
                }
                var keepers = new ArrayList<Future<Integer>>();
                for (int i = 0; i < 2; i++) {
                    var place = places.get(i);
                    var random = new Random(seed + 20 + i);
                    keepers.add(threads.submit(() -> keep(place, shared, lives, random)));
                }
                keepers.add(threads.submit(() -> kill(places.get(2), shared, kills, seed + 30)));
                for (var keeper : keepers) {
                    keeper.get(1, TimeUnit.HOURS);
                }
            } finally {
                over = true;
            }
            for (var other : others) {
                assertThat(other.get(60, TimeUnit.SECONDS)).as("seed %d", seed).isPositive();
            }
        }
        found.retainAll(begun); // a port may belong to an engine outside of this test by now
        assertThat(found).as("seed %d", seed).isNotEmpty();
        System.out.printf(
                "%d peers%s: %d of them looked up, %d writes, %d to the dead%n",
                begun.size(),
                shared ? "" : " over TCP",
                found.size(),
                written.get(),
                refused.get());
        var limit = Deadline.in(LONG);
        while (!mappedRegions().isEmpty()) {
            assertThat(limit.passed()).as("seed %d: %s", seed, mappedRegions()).isFalse();
            Thread.sleep(10);
        }
    }

    /// Without the small control pages, which are left to the collector.
    private List<String> mappedRegions() throws IOException {
        var real = folder.toRealPath().toString();
        return Files.readAllLines(Path.of("/proc/self/maps")).stream()
                .filter(line -> line.contains(real) && !line.contains(".ctl"))
                .toList();
    }

    /// One peer after the other in this process.
    private int keep(Place place, boolean shared, int lives, Random random) {
        for (int i = 0; i < lives; i++) {
            var arena = Arena.ofShared();
            var engine = start(place.settings(folder, shared));
            var access = random.nextBoolean() ? Access.GRANTED : Access.OPEN;
            var memory = engine.allocate(BYTES, access, arena);
            var grant = engine.grant(memory.address(), BYTES);
            var life =
                    new Life(
                            engine.info().segmentName(),
                            engine.info().incarnation(),
                            memory.address(),
                            grant.token(),
                            memory.memory());
            begun.add(life.incarnation);
            place.current = life;
            LockSupport.parkNanos(random.nextInt(60_000_000));
            life.ending = true;
            if (random.nextBoolean()) {
                grant.close();
            } else {
                engine.close();
            }
            memory.memory().fill(REUSED);
            LockSupport.parkNanos(random.nextInt(2_000_000));
            assertThat(firstOther(memory.memory())).as("foreign byte").isEqualTo(-1);
            engine.close();
            life.mapped.writeLock().lock();
            try {
                arena.close();
            } finally {
                life.mapped.writeLock().unlock();
            }
        }
        return lives;
    }

    private static JavaTransferEngine start(Map<String, String> settings) {
        var limit = Deadline.in(LONG);
        while (true) {
            try {
                return JavaTransferEngine.start(EngineConfig.from(settings));
            } catch (KvFerryException e) { // its ports are in use for a moment
                assertThat(limit.passed()).as("%s", e).isFalse();
                LockSupport.parkNanos(1_000_000);
            }
        }
    }

    private static long firstOther(MemorySegment memory) {
        var part = new byte[1 << 20];
        java.util.Arrays.fill(part, REUSED);
        var expected = MemorySegment.ofArray(part);
        for (long at = 0; at < memory.byteSize(); at += part.length) {
            long different = memory.asSlice(at, part.length).mismatch(expected);
            if (different >= 0) {
                return at + different;
            }
        }
        return -1;
    }

    /// One peer after the other in a process of its own, which is killed.
    private int kill(Place place, boolean shared, int kills, long seed) throws Exception {
        var random = new Random(seed);
        var settings = new ArrayList<String>(List.of("bytes=" + BYTES));
        place.settings(folder, shared).forEach((key, value) -> settings.add(key + "=" + value));
        for (int i = 0; i < kills; i++) {
            try (var process = startProcess(settings)) {
                var life =
                        new Life(
                                process.segmentName,
                                incarnation(process.segmentName),
                                process.address,
                                Long.parseLong(process.ask("grant")),
                                null);
                begun.add(life.incarnation);
                place.current = life;
                LockSupport.parkNanos(random.nextInt(100_000_000));
                life.ending = true;
                process.kill();
            }
        }
        return kills;
    }

    private static EngineProcess startProcess(List<String> settings) throws IOException {
        var limit = Deadline.in(LONG);
        while (true) {
            try {
                return new EngineProcess(settings.toArray(new String[0]));
            } catch (IOException e) { // its ports are in use for a moment
                assertThat(limit.passed()).as("%s", e).isFalse();
            }
        }
    }

    /// As an engine sees it that has not seen its predecessors.
    private static String incarnation(String name) {
        try (var engine =
                JavaTransferEngine.start(EngineConfig.from(Map.of("shared-memory", "false")))) {
            return engine.open(name, Deadline.in(LONG)).incarnation();
        }
    }

    /// Looks peers up, those that live and those that have just ended.
    private int ask(JavaTransferEngine here, List<Place> places, Random random) {
        var names = new String[places.size()];
        int answered = 0;
        while (!over) {
            int at = random.nextInt(names.length);
            var life = places.get(at).current;
            if (life == null) {
                Thread.yield();
                continue;
            }
            String name = names[at];
            if (name == null || random.nextBoolean()) {
                name = life.name;
                names[at] = name;
            }
            boolean hurries = random.nextInt(4) == 0;
            var limit = hurries ? Duration.ofNanos(random.nextInt(300_000)) : LONG;
            try {
                found.add(here.open(name, Deadline.in(limit)).incarnation());
                answered++;
            } catch (KvFerryException e) {
                if (hurries && e.code() == ErrorCode.TIMEOUT) {
                    continue;
                }
                assertThat(UNANSWERED).as("%s", e).contains(e.code());
                if (name.equals(life.name)) {
                    assertThat(life.ending).as("unanswered while it lived: %s", e).isTrue();
                }
            }
        }
        return answered;
    }

    /// Writes to those that live, into places of its own.
    private int write(JavaTransferEngine here, List<Place> places, int writer, Random random) {
        int completed = 0;
        var near = here.allocate(LARGE);
        for (int stamp = 1; !over; stamp++) {
            var life = places.get(random.nextInt(places.size())).current;
            if (life == null) {
                Thread.yield();
                continue;
            }
            int bytes = random.nextInt(4) == 0 ? LARGE : SLOT;
            long offset = (long) writer * LARGE;
            offset += bytes == LARGE ? 0 : random.nextInt(20) * (long) SLOT;
            var sent = near.memory().asSlice(0, bytes);
            sent.fill((byte) (1 + stamp % (REUSED - 1)));
            boolean ended = life.ending;
            var request =
                    EngineRequest.write(
                                    life.name,
                                    Ranges.of(near.address(), life.address + offset, bytes),
                                    Deadline.in(LONG))
                            .withIncarnation(life.incarnation)
                            .withCapability(life.token);
            switch (here.transfer(request)) {
                case Completed _ -> {
                    completed++;
                    written.incrementAndGet();
                    requireArrived(life, offset, sent);
                }
                case Failed(var failure, _) -> {
                    assertThat(life.ending).as("failed while it lived: %s", failure).isTrue();
                    assertThat(failure.code())
                            .as("%s", failure)
                            .isIn(
                                    ErrorCode.PEER_LOST,
                                    ErrorCode.PROTOCOL, // no data port any more
                                    ErrorCode.PEER_REFUSED,
                                    ErrorCode.LEASE_EXPIRED,
                                    ErrorCode.STALE_INCARNATION);
                    if (ended) {
                        refused.incrementAndGet();
                    }
                }
            }
        }
        return completed;
    }

    private static void requireArrived(Life life, long offset, MemorySegment sent) {
        var memory = life.memory;
        life.mapped.readLock().lock();
        try {
            if (memory == null || life.ending) {
                return; // of another process, or used for something else by now
            }
            long different = memory.asSlice(offset, sent.byteSize()).mismatch(sent);
            assertThat(different < 0 || life.ending).as("byte %d", different).isTrue();
        } finally {
            life.mapped.readLock().unlock();
        }
    }
}
