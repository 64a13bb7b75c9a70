// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.FairRoom;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Hosts that connect to a port with few places and hang up at random, one after the other and all
/// at once. The oracle counts what the hosts see: never more connections than places, each newcomer
/// is served, one connection goes for him where there is no place, of the host that has the most,
/// and when all have hung up none is left. A host with one connection keeps it, and is answered.
class CrowdedPortInterleavingTest {
    private static final int MOST = 8;
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final int STEPS = 40;

    /// Whose one connection outlives all of it.
    private static final String FRIEND = "127.0.0.1";

    @Test
    void keepsItsInvariantsInAFewHistories() throws Exception {
        for (long seed = 0; seed < 12; seed++) {
            play(seed);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void keepsItsInvariantsInManyHistories() throws Exception {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        for (long seed = first; seed < first + Long.getLong("kvferry.soak.seeds", 500); seed++) {
            play(seed);
        }
    }

    private static void play(long seed) throws Exception {
        try (var history = new History(seed)) {
            history.play();
        } catch (AssertionError | Exception e) {
            throw new AssertionError("seed " + seed, e);
        }
    }

    /// The peer's end of a connection.
    private static final class Peer {
        private final String host;
        private final SocketChannel channel;
        private boolean heard;
        private boolean ended;

        Peer(String host, InetSocketAddress to) throws IOException {
            this.host = host;
            this.channel = SocketChannel.open();
            channel.bind(new InetSocketAddress(InetAddress.ofLiteral(host), 0));
            channel.connect(to);
            channel.configureBlocking(false);
        }

        /// Reads what has come: the port's greeting, or its end.
        Peer look() {
            try {
                int got = ended ? -1 : channel.read(ByteBuffer.allocate(256));
                heard |= got > 0;
                ended |= got < 0;
            } catch (IOException _) {
                ended = true;
            }
            return this;
        }

        boolean isOpen() {
            return !look().ended;
        }

        boolean isServed() {
            look();
            return heard || ended;
        }

        void hangUp() {
            try {
                channel.close();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static final class History implements AutoCloseable {
        private final Random random;
        private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
        private final RouterPort port;
        private final InetSocketAddress address;
        private final Requester friend;
        private final List<Peer> open = new ArrayList<>();

        History(long seed) throws IOException {
            this.random = new Random(seed);
            var listener =
                    ServerSocketChannel.open()
                            .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            this.address = (InetSocketAddress) listener.getLocalAddress();
            this.port =
                    new RouterPort(
                            "test",
                            listener,
                            FRIEND,
                            Optional.empty(),
                            (asker, message) -> asker.answer(message),
                            clock,
                            MOST,
                            new FairRoom(Integer.MAX_VALUE, 1 << 20),
                            new ByteBudget(1 << 20),
                            Thread.ofPlatform().daemon().factory());
            this.friend = new Requester("test", port.address(), Optional.empty());
        }

        private String host() {
            return "127.0.0." + (2 + (random.nextBoolean() ? 0 : random.nextInt(4)));
        }

        private void await(String what, BooleanSupplier condition) {
            var limit = Deadline.in(SOON);
            while (!condition.getAsBoolean()) {
                assertThat(port.connections()).isLessThanOrEqualTo(MOST);
                assertThat(limit.passed())
                        .as("%s: %d at the port, %d here", what, port.connections(), open.size())
                        .isFalse();
                LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(200));
            }
        }

        private void ask() {
            assertThat(friend.ask(new byte[] {1}, SOON, SOON)).containsExactly(1);
        }

        void play() throws Exception {
            ask();
            for (int step = 0; step < STEPS; step++) {
                switch (random.nextInt(6)) {
                    case 0, 1, 2 -> connect();
                    case 3 -> hangUp();
                    case 4 -> rush();
                    default -> ask();
                }
            }
            ask();
            open.forEach(Peer::hangUp);
            open.clear();
            await("only the friend is left", () -> port.connections() == 1);
            friend.close();
            await("nobody is left", () -> port.connections() == 0);
        }

        private void connect() throws IOException {
            int before = open.size() + 1; // and the friend
            var counts = new HashMap<String, Integer>(Map.of(FRIEND, 1));
            open.forEach(peer -> counts.merge(peer.host, 1, Integer::sum));
            var newcomer = new Peer(host(), address);
            counts.merge(newcomer.host, 1, Integer::sum);
            open.add(newcomer);
            await("the newcomer is served", newcomer::isServed);
            assertThat(newcomer.ended).as("it was its turn").isFalse();
            if (before < MOST) {
                await("one more", () -> port.connections() == before + 1);
                assertThat(open).allMatch(Peer::isOpen);
                return;
            }
            await("one goes", () -> !open.stream().allMatch(Peer::isOpen));
            await("as many as before", () -> port.connections() == MOST);
            var gone = open.stream().filter(peer -> peer.look().ended).toList();
            assertThat(gone).hasSize(1);
            int most = counts.values().stream().mapToInt(Integer::intValue).max().orElseThrow();
            assertThat(counts.get(gone.getFirst().host))
                    .as("of %s, which goes while there are %s", gone.getFirst().host, counts)
                    .isEqualTo(most);
            gone.forEach(Peer::hangUp);
            open.removeAll(gone);
        }

        private void hangUp() {
            if (!open.isEmpty()) {
                int left = open.size() - 1;
                open.remove(random.nextInt(open.size())).hangUp();
                await("one less", () -> port.connections() == left + 1);
            }
        }

        /// Several threads connect at a time, and may hang up meanwhile. When they have, a hang-up
        /// that the port has not seen and an eviction that a host has not seen look like none of
        /// either, so that all begin anew.
        private void rush() throws Exception {
            boolean hangUp = random.nextBoolean();
            var lists = new ArrayList<Future<List<Peer>>>();
            try (var threads = Executors.newCachedThreadPool()) {
                for (int i = 0; i < 3; i++) {
                    long own = random.nextLong();
                    var mine = new ArrayList<Peer>();
                    for (int j = open.size() / 4; j > 0; j--) {
                        mine.add(open.removeLast());
                    }
                    lists.add(threads.submit(() -> rush(new Random(own), mine, hangUp)));
                }
            }
            for (var list : lists) {
                open.addAll(list.get());
            }
            await("all are served", () -> open.stream().allMatch(Peer::isServed));
            await("the port has those that are open", () -> port.connections() == 1 + stillOpen());
            if (hangUp) {
                open.forEach(Peer::hangUp);
                open.clear();
                await("only the friend is left", () -> port.connections() == 1);
            }
            open.stream().filter(peer -> peer.ended).forEach(Peer::hangUp);
            open.removeIf(peer -> peer.ended);
        }

        private long stillOpen() {
            return open.stream().filter(Peer::isOpen).count();
        }

        private List<Peer> rush(Random choice, List<Peer> mine, boolean hangUp) throws IOException {
            for (int i = 0; i < 6; i++) {
                if (hangUp && !mine.isEmpty() && choice.nextBoolean()) {
                    mine.remove(choice.nextInt(mine.size())).hangUp();
                } else {
                    mine.add(new Peer("127.0.0." + (2 + choice.nextInt(4)), address));
                }
            }
            return mine;
        }

        @Override
        public void close() {
            open.forEach(Peer::hangUp);
            friend.close();
            port.close();
            clock.shutdownNow();
        }
    }
}
