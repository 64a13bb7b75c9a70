// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

class WatchdogTest {
    @Test
    void outlivesWhatItsChecksThrow() throws InterruptedException {
        try (var watchdog = new Watchdog("test")) {
            var thrown = new CountDownLatch(3);
            watchdog.repeat(() -> {
                thrown.countDown();
                throw new OutOfMemoryError("thrown by the test");
            });
            assertThat(thrown.await(20, TimeUnit.SECONDS)).as("ticks after an Error").isTrue();
            var later = new CountDownLatch(1);
            watchdog.repeat(() -> {
                later.countDown();
                return false;
            });
            assertThat(later.await(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// Closing a socket may take long. The deadlines of all other connections must not wait for it.
    @Test
    void neverClosesAConnectionItself() throws Exception {
        var config = EngineConfig.from(Map.of());
        var stuck = List.of(new StuckChannel(), new StuckChannel());
        try (var watchdog = new Watchdog("test")) {
            var readers = new ArrayList<Thread>();
            for (var channel : stuck) {
                var wire = new Wire(channel, config, watchdog, Staging.Pair.allocate());
                wire.begin(Deadline.in(Duration.ofMillis(50)));
                readers.add(
                        Thread.ofPlatform()
                                .daemon()
                                .start(() -> {
                                    try {
                                        wire.in.need(1);
                                    } catch (IOException _) {
                                        // Cut off, as it should be.
                                    }
                                }));
            }
            for (var channel : stuck) { // each, though the other's closing has not ended
                assertThat(channel.closing.get(20, TimeUnit.SECONDS).getName())
                        .isEqualTo("kvferry-te-expire");
            }
            var ticks = new CountDownLatch(5);
            watchdog.repeat(() -> {
                ticks.countDown();
                return true;
            });
            assertThat(ticks.await(20, TimeUnit.SECONDS)).as("ticks meanwhile").isTrue();
            stuck.forEach(channel -> channel.mayClose.countDown());
            for (var reader : readers) {
                assertThat(reader.join(Duration.ofSeconds(20))).isTrue();
            }
        } finally {
            stuck.forEach(channel -> channel.mayClose.countDown());
        }
    }

    @Test
    void aUseThatEndsIsNotCondemnedAndOneThatIsCondemnedDoesNotEndWell() {
        try (var watchdog = new Watchdog("test")) {
            var wire = unwatched(watchdog, Staging.Pair.allocate());
            wire.begin(Deadline.in(Duration.ZERO));
            assertThat(wire.rest()).isTrue();
            assertThat(wire.condemn(System.nanoTime())).isFalse();
            wire.begin(Deadline.in(Duration.ZERO));
            assertThat(wire.condemn(System.nanoTime())).isTrue();
            assertThat(wire.isExpired()).isTrue();
            assertThat(wire.rest()).isFalse();
        }
    }

    @Test
    void theNextUseIsNotTheOneThatTheWatchdogSaw() {
        try (var watchdog = new Watchdog("test")) {
            var wire = unwatched(watchdog, Staging.Pair.allocate());
            wire.begin(Deadline.in(Duration.ZERO));
            long seen = wire.use();
            assertThat(wire.rest()).isTrue();
            wire.begin(Deadline.in(Duration.ZERO));
            assertThat(wire.condemn(System.nanoTime(), seen)).isFalse();
            assertThat(wire.isExpired()).isFalse();
            assertThat(wire.condemn(System.nanoTime(), wire.use())).isTrue();
        }
    }

    /// One transfer ends at the moment when its time is up; the next has plenty.
    @Test
    void noUseIsCondemnedForTheOneBefore() throws Exception {
        try (var watchdog = new Watchdog("test")) {
            var staging = Staging.Pair.allocate();
            var current = new AtomicReference<>(unwatched(watchdog, staging));
            var over = new AtomicBoolean();
            var condemning =
                    Thread.ofPlatform()
                            .start(() -> {
                                while (!over.get()) {
                                    current.get().condemn(System.nanoTime());
                                }
                            });
            int spared = 0;
            try {
                for (int i = 0; i < 20_000; i++) {
                    var wire = current.get();
                    wire.begin(Deadline.in(Duration.ZERO));
                    if (wire.rest()) {
                        spared++;
                        wire.begin(Deadline.in(Duration.ofHours(1)));
                        assertThat(wire.rest()).isTrue();
                        assertThat(wire.isExpired()).isFalse();
                    } else {
                        current.set(unwatched(watchdog, staging));
                    }
                }
            } finally {
                over.set(true);
                condemning.join();
            }
            assertThat(spared).isPositive();
        }
    }

    private static Wire unwatched(Watchdog watchdog, Staging.Pair staging) {
        var wire = new Wire(new StuckChannel(), EngineConfig.defaults(), watchdog, staging);
        watchdog.forget(wire);
        return wire;
    }

    /// A call to a silent peer would block for ever on a connection that outlived the watchdog.
    @Test
    void noConnectionOutlivesIt() throws Exception {
        var config = EngineConfig.from(Map.of());
        try (var server = new ServerSocket(0, 4, InetAddress.getLoopbackAddress())) {
            var watchdog = new Watchdog("test");
            var early = wire(server, config, watchdog);
            var ended = new CountDownLatch(2);
            read(early, ended);
            watchdog.close();
            read(wire(server, config, watchdog), ended);
            assertThat(ended.await(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    private static Wire wire(ServerSocket server, EngineConfig config, Watchdog watchdog)
            throws IOException {
        var channel = SocketChannel.open(server.getLocalSocketAddress());
        return new Wire(channel, config, watchdog, Staging.Pair.allocate());
    }

    private static void read(Wire wire, CountDownLatch ended) {
        wire.begin(Deadline.in(Duration.ofHours(1)));
        Thread.ofPlatform()
                .daemon()
                .start(() -> {
                    try {
                        wire.in.need(1);
                    } catch (IOException _) {
                        ended.countDown();
                    }
                });
    }
}
