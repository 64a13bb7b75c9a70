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

    /// Closing a socket may take long: the deadlines of all other connections wait for nobody.
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

    /// Whoever waits for a peer that says nothing would wait for ever.
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
