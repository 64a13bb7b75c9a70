// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Peers that come and go, take and give at random. The oracle keeps a list of what is held. Checks
/// that the total is never exceeded, that a peer holding nothing gets room if there is any, that no
/// peer holding some gets more than it leaves free, and that everything is returned.
class FairRoomInterleavingTest {
    private static final int STEPS = 400;
    private static final Duration LONG = Duration.ofSeconds(60);

    private record Piece(String peer, int places, long bytes) {}

    @Test
    void keepsItsInvariantsInAFewHundredHistories() {
        for (long seed = 0; seed < 300; seed++) {
            play(seed);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void keepsItsInvariantsInManyHistories() {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        for (long seed = first; seed < first + Long.getLong("kvferry.soak.seeds", 50_000); seed++) {
            play(seed);
        }
    }

    private static void play(long seed) {
        var random = new Random(seed);
        int places = 1 + random.nextInt(64);
        long bytes = 1 + random.nextInt(10_000);
        var room = new FairRoom(places, bytes);
        var held = new ArrayList<Piece>();
        int peers = 1 + random.nextInt(8);
        for (int step = 0; step < STEPS; step++) {
            if (!held.isEmpty() && random.nextInt(5) < 2) {
                give(room, held.remove(random.nextInt(held.size())));
                continue;
            }
            var piece =
                    new Piece(
                            "p" + random.nextInt(peers),
                            random.nextInt(random.nextInt(4) == 0 ? places + 2 : 3),
                            random.nextInt(4) == 0 ? 0 : random.nextLong(bytes / 4 + 2));
            boolean expected = admits(places, bytes, held, piece);
            boolean taken =
                    random.nextInt(8) == 0
                            ? room.await(
                                    piece.peer(),
                                    piece.places(),
                                    piece.bytes(),
                                    Deadline.in(Duration.ZERO))
                            : room.take(piece.peer(), piece.places(), piece.bytes());
            assertThat(taken)
                    .as(
                            "seed %d, step %d: %s of %d, %d while %s",
                            seed, step, piece, places, bytes, held)
                    .isEqualTo(expected);
            if (taken) {
                held.add(piece);
            }
        }
        held.forEach(piece -> give(room, piece));
        assertThat(room.peers()).as("seed %d: peers that hold nothing", seed).isZero();
        assertThat(room.take("last", places, bytes)).as("seed %d: all of it", seed).isTrue();
    }

    private static void give(FairRoom room, Piece piece) {
        room.give(piece.peer(), piece.places(), piece.bytes());
    }

    private static boolean admits(int places, long bytes, List<Piece> held, Piece piece) {
        int usedPlaces = piece.places();
        long usedBytes = piece.bytes();
        int ownPlaces = piece.places();
        long ownBytes = piece.bytes();
        boolean known = false;
        for (Piece other : held) {
            usedPlaces += other.places();
            usedBytes += other.bytes();
            if (other.peer().equals(piece.peer())) {
                ownPlaces += other.places();
                ownBytes += other.bytes();
                known |= other.places() > 0 || other.bytes() > 0;
            }
        }
        boolean fits = usedPlaces <= places && usedBytes <= bytes;
        boolean fair = ownPlaces <= places - usedPlaces && ownBytes <= bytes - usedBytes;
        return fits && (!known || fair);
    }

    @Test
    void whoWaitsIsServedWhateverTheThreadsDo() throws Exception {
        for (long seed = 0; seed < 10; seed++) {
            playThreads(seed, 300);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void whoWaitsIsServedInManyHistories() throws Exception {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        for (long seed = first; seed < first + Long.getLong("kvferry.soak.seeds", 1000); seed++) {
            playThreads(seed, 1000);
        }
    }

    /// Two threads of each of three peers. A thread that holds something never waits, so that in
    /// the end there is room for each that does.
    private static void playThreads(long seed, int rounds) throws Exception {
        int places = 8;
        long bytes = 1000;
        var room = new FairRoom(places, bytes);
        var usedPlaces = new AtomicLong();
        var usedBytes = new AtomicLong();
        var start = new CountDownLatch(1);
        try (var threads = Executors.newCachedThreadPool(Thread.ofPlatform().daemon().factory())) {
            var ends = new ArrayList<Future<?>>();
            for (int i = 0; i < 6; i++) {
                var peer = "p" + i / 2;
                var random = new Random(seed * 31 + i);
                ends.add(
                        threads.submit(() -> {
                            start.await();
                            for (int round = 0; round < rounds; round++) {
                                var piece =
                                        new Piece(peer, 1 + random.nextInt(4), random.nextInt(500));
                                if (random.nextBoolean()
                                        ? room.take(peer, piece.places(), piece.bytes())
                                        : await(room, piece)) {
                                    assertThat(usedPlaces.addAndGet(piece.places()))
                                            .isLessThanOrEqualTo(places);
                                    assertThat(usedBytes.addAndGet(piece.bytes()))
                                            .isLessThanOrEqualTo(bytes);
                                    if (random.nextInt(4) == 0) {
                                        Thread.yield();
                                    }
                                    usedPlaces.addAndGet(-piece.places());
                                    usedBytes.addAndGet(-piece.bytes());
                                    give(room, piece);
                                }
                            }
                            return true;
                        }));
            }
            start.countDown();
            for (var end : ends) {
                assertThat(end).as("seed %d", seed).succeedsWithin(90, TimeUnit.SECONDS);
            }
        }
        assertThat(room.peers()).as("seed %d", seed).isZero();
        assertThat(room.take("last", places, bytes)).as("seed %d", seed).isTrue();
    }

    private static boolean await(FairRoom room, Piece piece) {
        assertThat(room.await(piece.peer(), piece.places(), piece.bytes(), Deadline.in(LONG)))
                .as("%s is served", piece)
                .isTrue();
        return true;
    }
}
