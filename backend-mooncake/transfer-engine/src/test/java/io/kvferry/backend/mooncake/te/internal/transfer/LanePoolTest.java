// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// Threads take connections and give them back, healthy or not, while others close some at the
/// peer, look for those that are dead, and drop the peer in the end.
class LanePoolTest {
    private static final int MOST = 3;
    private static final Duration SOON = Duration.ofSeconds(30);

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void noConnectionHasTwoUsersNorIsOneTooManyNorDoesAnybodyWaitForNothing(long seed)
            throws Exception {
        var config = EngineConfig.from(Map.of("lanes-per-peer", Integer.toString(MOST)));
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            Set<Socket> accepted = ConcurrentHashMap.newKeySet();
            threads.submit(() -> accept(server, accepted));
            var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
            Set<Peer.Lane> lanes = ConcurrentHashMap.newKeySet();
            Set<Peer.Lane> held = ConcurrentHashMap.newKeySet();
            var busy = new AtomicInteger();
            var over = new AtomicBoolean();
            List<Callable<Void>> work = new ArrayList<>();
            for (int t = 0; t < 6; t++) {
                var choice = new Random(seed * 100 + t);
                work.add(() -> {
                    for (int i = 0; i < 3_000; i++) {
                        use(peer, choice, lanes, held, busy);
                    }
                    return null;
                });
            }
            var disturbing = threads.submit(() -> disturb(peer, accepted, over, new Random(seed)));
            for (var done : threads.invokeAll(work, 60, TimeUnit.SECONDS)) {
                done.get();
            }
            over.set(true);
            disturbing.get(10, TimeUnit.SECONDS);
            assertThat(peer.lanes()).as("all rest").isBetween(0, MOST);
            dropWhileUsed(peer, seed, lanes, held, busy, threads::invokeAll);
            assertThat(peer.lanes()).as("nothing is left").isZero();
            assertThat(peer.isUnused(Duration.ZERO)).isTrue();
            assertThat(lanes).allMatch(lane -> isClosed(lane));
        }
    }

    @Test
    void whoWaitsGetsWhatComesBack() throws Exception {
        var config = EngineConfig.from(Map.of("lanes-per-peer", "1"));
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
            var lane = borrow(peer);
            for (int i = 0; i < 20; i++) {
                var waiter = new CompletableFuture<Thread>();
                var next =
                        threads.submit(() -> {
                            waiter.complete(Thread.currentThread());
                            return borrow(peer);
                        });
                var state = waiter.get(10, TimeUnit.SECONDS);
                while (state.getState() != Thread.State.TIMED_WAITING) {
                    Thread.onSpinWait();
                }
                peer.giveBack(lane, true);
                assertThat(next.get(15, TimeUnit.SECONDS)).isSameAs(lane);
            }
            peer.giveBack(lane, true);
            peer.drop();
        }
    }

    /// A thread that gives its lane back takes it again sooner than a waiter wakes up.
    @Test
    void whoWaitsIsServedBeforeWhoComesAgain() throws Exception {
        var config = EngineConfig.from(Map.of("lanes-per-peer", "1"));
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
            for (int i = 0; i < 50; i++) {
                var lane = borrow(peer);
                var waiter = waiting(threads, peer);
                peer.giveBack(lane, true);
                assertThat(borrow(peer)).isSameAs(lane); // when the waiter has had it
                assertThat(waiter.done()).as("served first").isTrue();
                peer.giveBack(lane, true);
            }
            peer.drop();
        }
    }

    @Test
    void thoseWhoWaitAreServedInTurn() throws Exception {
        var config = EngineConfig.from(Map.of("lanes-per-peer", "1"));
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
            for (boolean healthy : new boolean[] {true, false}) {
                var lane = borrow(peer);
                List<Waiter> waiters = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    waiters.add(waiting(threads, peer));
                }
                peer.giveBack(lane, healthy); // an unhealthy one leaves room for another
                peer.giveBack(borrow(peer), true);
                for (int i = 1; i < waiters.size(); i++) {
                    assertThat(waiters.get(i).turn()).isGreaterThan(waiters.get(i - 1).turn());
                }
            }
            peer.drop();
        }
    }

    /// It is interrupted at the moment when its turn comes.
    @Test
    void aWaiterThatGivesUpLosesNoLane() throws Exception {
        var config = EngineConfig.from(Map.of("lanes-per-peer", "1"));
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            var peer = PeerTest.peer(server.getLocalPort(), config, watchdog);
            for (int i = 0; i < 40; i++) {
                var lane = borrow(peer);
                var first = waiting(threads, peer);
                var second = waiting(threads, peer);
                first.thread().interrupt();
                peer.giveBack(lane, i % 2 == 0);
                second.taken().get(15, TimeUnit.SECONDS);
                first.taken()
                        .handle((_, _) -> "failed, or was served before")
                        .get(15, TimeUnit.SECONDS);
                peer.giveBack(borrow(peer), true);
                assertThat(peer.lanes()).isEqualTo(1);
            }
            peer.drop();
        }
    }

    /// @param taken the turn in which it had a lane, which it gave back at once
    private record Waiter(Thread thread, CompletableFuture<Integer> taken) {
        boolean done() {
            return taken.isDone();
        }

        int turn() throws Exception {
            return taken.get(15, TimeUnit.SECONDS);
        }
    }

    private final AtomicInteger turns = new AtomicInteger();

    /// Returns when it waits.
    private Waiter waiting(Executor threads, Peer peer) throws Exception {
        var thread = new CompletableFuture<Thread>();
        var taken = new CompletableFuture<Integer>();
        threads.execute(() -> {
            thread.complete(Thread.currentThread());
            try {
                var lane = borrow(peer);
                taken.complete(turns.incrementAndGet());
                peer.giveBack(lane, true);
            } catch (IOException | RuntimeException e) {
                taken.completeExceptionally(e);
            }
        });
        var waiter = new Waiter(thread.get(10, TimeUnit.SECONDS), taken);
        while (waiter.thread().getState() != Thread.State.TIMED_WAITING) {
            assertThat(taken).isNotDone();
            Thread.onSpinWait();
        }
        return waiter;
    }

    @Test
    void whatComesBackAtTheMomentOfADropEnds() throws Exception {
        try (var threads = Executors.newCachedThreadPool();
                var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            var both = new CyclicBarrier(2);
            for (int i = 0; i < 500; i++) {
                var peer = PeerTest.peer(server.getLocalPort(), EngineConfig.defaults(), watchdog);
                var lane = borrow(peer);
                var accepted = server.accept();
                var dropping =
                        threads.submit(() -> {
                            both.await();
                            peer.drop();
                            return null;
                        });
                both.await();
                peer.giveBack(lane, true);
                dropping.get(10, TimeUnit.SECONDS);
                assertThat(peer.lanes()).isZero();
                assertThat(isClosed(lane)).isTrue();
                accepted.close();
            }
        }
    }

    static Peer.Lane borrow(Peer peer) throws IOException {
        return peer.borrow(Deadline.in(SOON), new PeerTest.Idle(), new Cancellation());
    }

    private interface All {
        List<Future<Void>> run(List<Callable<Void>> work) throws InterruptedException;
    }

    private static void dropWhileUsed(
            Peer peer,
            long seed,
            Set<Peer.Lane> lanes,
            Set<Peer.Lane> held,
            AtomicInteger busy,
            All threads)
            throws Exception {
        List<Callable<Void>> work = new ArrayList<>();
        for (int t = 0; t < 3; t++) {
            var choice = new Random(seed * 1_000 + t);
            work.add(() -> {
                for (int i = 0; i < 300; i++) {
                    use(peer, choice, lanes, held, busy);
                }
                return null;
            });
        }
        work.add(() -> {
            Thread.sleep(1 + seed);
            peer.drop();
            return null;
        });
        for (var done : threads.run(work)) {
            done.get();
        }
    }

    private static void use(
            Peer peer, Random choice, Set<Peer.Lane> lanes, Set<Peer.Lane> held, AtomicInteger busy)
            throws IOException {
        var lane = borrow(peer);
        lanes.add(lane);
        assertThat(held.add(lane)).as("has one user").isTrue();
        assertThat(busy.incrementAndGet()).isLessThanOrEqualTo(MOST);
        if (choice.nextInt(8) == 0) {
            Thread.yield();
        }
        busy.decrementAndGet();
        held.remove(lane);
        if (choice.nextInt(50) == 0) {
            lane.wire.close();
            peer.letGo();
        } else {
            peer.giveBack(lane, choice.nextInt(50) > 0);
        }
    }

    private static Void disturb(Peer peer, Set<Socket> accepted, AtomicBoolean over, Random choice)
            throws Exception {
        while (!over.get()) {
            peer.sweep(
                    Duration.ofNanos(choice.nextInt(100_000)),
                    choice.nextInt(4) == 0 ? Duration.ZERO : SOON);
            for (var each : accepted) {
                if (choice.nextInt(4) == 0) {
                    each.close();
                    accepted.remove(each);
                }
            }
            peer.wakeWaiters();
            Thread.yield();
        }
        return null;
    }

    private static Void accept(ServerSocket server, Set<Socket> accepted) throws IOException {
        try {
            while (true) {
                accepted.add(server.accept());
            }
        } catch (IOException e) {
            for (var each : accepted) {
                each.close();
            }
            return null; // the test is over
        }
    }

    private static boolean isClosed(Peer.Lane lane) {
        try {
            lane.wire.bytes().write(new byte[1]);
            return false;
        } catch (IOException e) {
            return true;
        }
    }
}
