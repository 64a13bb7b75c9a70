// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument.Extension;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedOwner;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;

class PeerTableTest {
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final int ASKERS = 4;
    private static final int QUESTIONS = 300;
    private static final int ENDS = 100;

    @TempDir Path folder;

    private static byte[] handshake(String name) {
        byte[] document =
                new SegmentDocument(
                                name,
                                "tcp",
                                1,
                                2,
                                List.of(),
                                new Extension(Extension.VERSION, INCARNATION, true))
                        .encode(LocalDateTime.now(), 1 << 20);
        return ByteBuffer.allocate(9 + document.length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(1L + document.length)
                .put((byte) 1)
                .put(document)
                .array();
    }

    /// Its end waits for the copy, and the deadlines of all other peers must not.
    @Test
    void aPeerThatDiesInTheMiddleOfACopyHoldsUpNoDeadline() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory-dir", folder.toString()));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        try (var watchdog = new Watchdog("test");
                var scripted = new ScriptedPeer(_ -> handshake(names[0]))) {
            names[0] = scripted.name();
            var owner = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
            var table = new PeerTable(directory, config, watchdog);
            var peer = table.find(names[0], Deadline.in(SOON), new Cancellation());
            var marks = peer.shared().orElseThrow().marks();
            int mark = marks.enter();
            owner.close();
            var limit = Deadline.in(SOON);
            while (!peer.isDropped()) {
                assertThat(limit.passed()).isFalse();
                Thread.yield();
            }
            var ticks = new CountDownLatch(2);
            watchdog.repeat(() -> {
                ticks.countDown();
                return true;
            });
            assertThat(ticks.await(30, TimeUnit.SECONDS)).as("the clock goes on").isTrue();
            marks.exit(mark);
            table.close();
        }
    }

    /// Copies to its memory would end with it.
    @Test
    void aLostConnectionDoesNotEndAPeerThatIsSeenToLive() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory-dir", folder.toString()));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        var asked = new AtomicInteger();
        var watchdog = new Watchdog("test");
        watchdog.close(); // nobody else sees that it has ended
        try (var scripted =
                new ScriptedPeer(_ -> {
                    asked.incrementAndGet();
                    return handshake(names[0]);
                })) {
            names[0] = scripted.name();
            var owner = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
            var table = new PeerTable(directory, config, watchdog);
            var peer = table.find(names[0], Deadline.in(SOON), new Cancellation());
            var limit = Deadline.in(SOON);
            while (asked.get() < 3) { // the second look-up has ended when there is a third
                table.connectionLost(peer);
                assertThat(limit.passed()).as("looked up again").isFalse();
                Thread.sleep(10);
            }
            assertThat(table.find(names[0], Deadline.in(SOON), new Cancellation())).isSameAs(peer);
            assertThat(peer.shared().orElseThrow().marks().isClosed()).isFalse();

            owner.retire(); // its engine is closed, and its process lives
            table.connectionLost(peer);
            assertThat(peer.isDropped()).isTrue();
            owner.close();
            table.close();
        }
    }

    /// Each of these calls may come from a transfer for an earlier incarnation.
    @Test
    void aPeerIsLookedUpAgainOnceForAllWhoAskMeanwhile() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory", "false"));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        var asked = new AtomicInteger();
        var second = new CountDownLatch(2);
        var released = new CountDownLatch(1);
        try (var watchdog = new Watchdog("test");
                var scripted =
                        new ScriptedPeer(_ -> {
                            asked.incrementAndGet();
                            second.countDown();
                            if (second.getCount() == 0) {
                                awaitQuietly(released);
                            }
                            return handshake(names[0]);
                        });
                var threads = Executors.newCachedThreadPool()) {
            names[0] = scripted.name();
            var table = new PeerTable(directory, config, watchdog);
            var peer = table.find(names[0], Deadline.in(SOON), new Cancellation());
            var callers = new ArrayList<Thread>();
            var calls = new ArrayList<Future<?>>();
            for (int i = 0; i < 20; i++) {
                calls.add(
                        threads.submit(() -> {
                            synchronized (callers) {
                                callers.add(Thread.currentThread());
                            }
                            table.lookUpAgain(peer, Deadline.in(SOON), new Cancellation());
                        }));
            }
            assertThat(second.await(30, TimeUnit.SECONDS)).isTrue();
            awaitWaiting(callers, 20);
            released.countDown();
            for (var call : calls) {
                call.get(30, TimeUnit.SECONDS);
            }
            assertThat(asked).as("the first, and two for all").hasValueLessThanOrEqualTo(3);
            assertThat(peer.isDropped()).isFalse();
            table.close();
        } finally {
            released.countDown();
        }
    }

    /// All but one, which has asked and waits for the answer, in the table.
    private static void awaitWaiting(List<Thread> threads, int count) throws InterruptedException {
        var limit = Deadline.in(SOON);
        while (true) {
            synchronized (threads) {
                if (threads.stream()
                                .filter(thread -> thread.getState() == Thread.State.TIMED_WAITING)
                                .count()
                        >= count - 1) {
                    return;
                }
            }
            assertThat(limit.passed()).isFalse();
            Thread.sleep(10);
        }
    }

    /// Its transfers go through the socket until then.
    @Test
    void sharedMemoryThatCouldNotBeAttachedIsUsedWhenTheTroubleIsOver() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory-dir", folder.toString()));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        var watchdog = new Watchdog("test");
        watchdog.close(); // nobody else attaches meanwhile
        try (var scripted = new ScriptedPeer(_ -> handshake(names[0]));
                var _ = SharedOwner.create(folder, INCARNATION, false).orElseThrow()) {
            names[0] = scripted.name();
            var table = new PeerTable(directory, config, watchdog);
            var control = folder.resolve("kvferry-" + INCARNATION + ".ctl");
            Files.move(control, folder.resolve("aside"));
            Files.createDirectory(control); // opening it fails
            var peer = table.find(names[0], Deadline.in(SOON), new Cancellation());
            assertThat(peer.shared()).isEmpty();
            assertThat(peer.attachAgain()).isEmpty();
            Files.delete(control);
            Files.move(folder.resolve("aside"), control);
            assertThat(peer.attachAgain()).isPresent();
            assertThat(peer.shared()).isPresent();
            assertThat(peer.attachAgain()).isEmpty();
            table.close();
            assertThat(peer.shared().orElseThrow().marks().isClosed()).isTrue();
        }
    }

    /// A thread that found the old connections dead forgets the peer while another thread looks it
    /// up again: all threads get the peer of that lookup, and no connection is left unmanaged.
    @Test
    void aPeerThatIsForgottenWhileItIsLookedUpAnewIsKnownOnce() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory", "false"));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        var asked = new CountDownLatch(2);
        var released = new CountDownLatch(1);
        try (var watchdog = new Watchdog("test");
                var scripted =
                        new ScriptedPeer(_ -> {
                            asked.countDown();
                            if (asked.getCount() == 0) {
                                awaitQuietly(released);
                            }
                            return handshake(names[0]);
                        })) {
            names[0] = scripted.name();
            var table = new PeerTable(directory, config, watchdog);
            var dead = table.find(names[0], Deadline.in(SOON), new Cancellation());
            dead.drop();
            var found =
                    CompletableFuture.supplyAsync(
                            () -> table.find(names[0], Deadline.in(SOON), new Cancellation()));
            assertThat(asked.await(30, TimeUnit.SECONDS)).isTrue();
            table.drop(dead);
            released.countDown();
            var peer = found.get(30, TimeUnit.SECONDS);
            assertThat(peer.isDropped()).isFalse();
            assertThat(table.find(names[0], Deadline.in(SOON), new Cancellation())).isSameAs(peer);
            table.close();
            assertThat(peer.isDropped()).isTrue();
        } finally {
            released.countDown();
        }
    }

    /// Nobody would look at its connections and its memory.
    @Test
    void aPeerThatIsFoundWhileTheTableIsClosedIsDropped() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory-dir", folder.toString()));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        var asked = new CountDownLatch(1);
        var released = new CountDownLatch(1);
        try (var watchdog = new Watchdog("test");
                var _ = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
                var scripted =
                        new ScriptedPeer(_ -> {
                            asked.countDown();
                            awaitQuietly(released);
                            return handshake(names[0]);
                        })) {
            names[0] = scripted.name();
            int places = freePlaces();
            var table = new PeerTable(directory, config, watchdog);
            var found =
                    CompletableFuture.supplyAsync(
                            () -> table.find(names[0], Deadline.in(SOON), new Cancellation()));
            assertThat(asked.await(30, TimeUnit.SECONDS)).isTrue();
            table.close();
            released.countDown();
            assertThat(found)
                    .failsWithin(SOON)
                    .withThrowableThat()
                    .havingCause()
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
            assertThat(freePlaces()).isEqualTo(places);
        } finally {
            released.countDown();
        }
    }

    /// A peer that names the incarnation of another engine occupies a user slot there in every
    /// process that looks it up, until the unused attachment is closed.
    @Test
    void anAttachmentThatNoTransferUsesKeepsNoPlace() throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory-dir", folder.toString()));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        try (var watchdog = new Watchdog("test");
                var scripted = new ScriptedPeer(_ -> handshake(names[0]));
                var _ = SharedOwner.create(folder, INCARNATION, false).orElseThrow()) {
            names[0] = scripted.name();
            int places = freePlaces();
            var table = new PeerTable(directory, config, watchdog);
            var peer = table.find(names[0], Deadline.in(SOON), new Cancellation());
            assertThat(freePlaces()).isEqualTo(places - 1);
            peer.detachUnused(Duration.ofHours(1));
            assertThat(freePlaces()).isEqualTo(places - 1);

            var used = peer.shared().orElseThrow();
            used.use();
            peer.detachUnused(Duration.ZERO);
            assertThat(peer.shared()).as("was used").isPresent();

            int copying = used.marks().enter();
            peer.detachUnused(Duration.ZERO);
            assertThat(peer.shared()).as("a copy is under way").isPresent();
            used.marks().exit(copying);

            peer.detachUnused(Duration.ZERO);
            assertThat(freePlaces()).isEqualTo(places);
            assertThat(peer.isUnused(Duration.ZERO)).isTrue();
            assertThat(peer.isDropped()).isFalse();
            assertThat(peer.attachAgain()).as("what it may share by then").isPresent();
            peer.detachUnused(Duration.ZERO);
            table.close();
        }
    }

    /// For processes that attach to the shared memory.
    private int freePlaces() {
        var attached = new ArrayList<SharedPeer>();
        try {
            while (true) {
                attached.add(SharedPeer.attach(folder, INCARNATION, false).orElseThrow());
            }
        } catch (IOException e) { // all are taken
            return attached.size();
        } finally {
            attached.forEach(SharedPeer::close);
        }
    }

    /// Lookups, their ends and drops in any order: every lookup is answered, and in the end exactly
    /// one of the found peers is not dropped.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void onePeerIsKnownWhateverComesFirst(long seed) throws Exception {
        var config = EngineConfig.from(Map.of("shared-memory", "false"));
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var names = new String[1];
        try (var watchdog = new Watchdog("test");
                var scripted = new ScriptedPeer(_ -> handshake(names[0]));
                var threads = Executors.newFixedThreadPool(ASKERS)) {
            names[0] = scripted.name();
            var table = new PeerTable(directory, config, watchdog);
            Set<Peer> found = ConcurrentHashMap.newKeySet();
            var askers = new ArrayList<Asker>();
            var results = new ArrayList<Future<Integer>>();
            for (int i = 0; i < ASKERS; i++) {
                var asker = new Asker(table, names[0], found, new Random(31 * seed + i));
                askers.add(asker);
                results.add(threads.submit(asker));
            }
            var random = new Random(seed);
            for (int i = 0; i < ENDS; i++) { // behind them nobody helps who waits for the others
                askers.get(random.nextInt(ASKERS)).endQuestion(random.nextBoolean());
                TimeUnit.MICROSECONDS.sleep(random.nextInt(1_000));
            }
            int answered = 0;
            for (var result : results) {
                answered += result.get(120, TimeUnit.SECONDS);
            }
            assertThat(answered).as("questions that were answered").isPositive();
            var last = table.find(names[0], Deadline.in(SOON), new Cancellation());
            found.add(last);
            assertThat(found).filteredOn(peer -> !peer.isDropped()).containsExactly(last);
            table.close();
            assertThat(found).allMatch(Peer::isDropped);
        }
    }

    /// One thread that asks again and again, until each of its questions has ended.
    private static final class Asker implements Callable<Integer> {
        private final PeerTable table;
        private final String name;
        private final Set<Peer> found;
        private final Random random;
        private final ReentrantLock lock = new ReentrantLock(); // for what is below
        private Cancellation open = new Cancellation();
        private @Nullable Thread thread;
        private boolean ended; // the open question, by somebody else

        Asker(PeerTable table, String name, Set<Peer> found, Random random) {
            this.table = table;
            this.name = name;
            this.found = found;
            this.random = random;
        }

        void endQuestion(boolean interrupts) {
            lock.lock();
            try {
                ended = true;
                if (!interrupts) {
                    open.cancel(ErrorCode.CANCELLED);
                } else if (thread != null) {
                    thread.interrupt();
                }
            } finally {
                lock.unlock();
            }
        }

        private Cancellation begin() {
            lock.lock();
            try {
                var _ = Thread.interrupted();
                ended = false;
                open = new Cancellation();
                thread = Thread.currentThread();
                return open;
            } finally {
                lock.unlock();
            }
        }

        /// @return whether somebody else ended the question
        private boolean end() {
            lock.lock();
            try {
                thread = null;
                return ended;
            } finally {
                lock.unlock();
            }
        }

        @Override
        public Integer call() {
            var mine = new ArrayList<Peer>();
            int answered = 0;
            for (int i = 0; i < QUESTIONS; i++) {
                boolean hurries = random.nextInt(4) == 0;
                var limit = hurries ? Duration.ofNanos(random.nextInt(300_000)) : SOON;
                var cancellation = begin();
                try {
                    var peer = table.find(name, Deadline.in(limit), cancellation);
                    found.add(peer);
                    answered++;
                    end();
                    mine.add(peer);
                    if (random.nextInt(4) > 0) { // also late, when others have found the next
                        table.drop(mine.get(Math.max(0, mine.size() - 1 - random.nextInt(2))));
                    }
                } catch (KvFerryException e) {
                    assertThat(end() || hurries).as("question %d failed: %s", i, e).isTrue();
                }
            }
            var _ = Thread.interrupted();
            return answered;
        }
    }

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            var _ = latch.await(30, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
