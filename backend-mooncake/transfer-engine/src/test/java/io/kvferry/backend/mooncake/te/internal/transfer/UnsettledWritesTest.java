// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

class UnsettledWritesTest {
    private static final Duration SOON = Duration.ofSeconds(30);

    private final Watchdog watchdog = new Watchdog("test");
    private final ServerSocket server;
    private final AtomicBoolean closing = new AtomicBoolean();
    private final Peer peer;
    private final UnsettledWrites unsettled;

    UnsettledWritesTest() throws IOException {
        server = new ServerSocket(0, 4, InetAddress.getLoopbackAddress());
        peer = PeerTest.peer(server.getLocalPort(), EngineConfig.defaults(), watchdog);
        unsettled = new UnsettledWrites(peer, SubmitQueuesTest.context(watchdog, closing::get), 1);
    }

    @AfterEach
    void close() throws IOException {
        peer.drop();
        server.close();
        watchdog.close();
    }

    private CompletableFuture<Boolean> awaiting() {
        return CompletableFuture.supplyAsync(() -> {
            unsettled.awaitQuiet();
            return true;
        });
    }

    @Test
    void nothingIsWaitedForWhereAllIsSettled() throws Exception {
        try (var wire = peer.connect(Deadline.in(SOON), new Cancellation())) {
            assertThat(unsettled.begin(0, true)).isNotZero();
            unsettled.settled(0);
            assertThat(unsettled.keep(wire)).as("was not stopped").isFalse();
            assertThat(awaiting().get(10, TimeUnit.SECONDS)).isTrue();
        }
    }

    @Test
    void aStoppedConnectionIsWaitedForUntilThePeerClosesIt() throws Exception {
        var wire = peer.connect(Deadline.in(SOON), new Cancellation());
        try (var accepted = server.accept()) {
            wire.stoppable(true);
            wire.begin(Deadline.in(SOON));
            wire.stop();
            assertThat(unsettled.keep(wire)).isTrue();
            var quiet = awaiting();
            assertThat(accepted.getInputStream().read()).as("the end of the output").isEqualTo(-1);
            Thread.sleep(50);
            assertThat(quiet).isNotDone();
            accepted.shutdownOutput(); // all that the other side sees of a close
            assertThat(quiet.get(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// A close of the engine aborts the connections that it sees, and this one was on its way from
    /// one list to the other.
    @Test
    void aStoppedConnectionThatComesWhileTheEngineClosesIsAborted() throws Exception {
        var wire = peer.connect(Deadline.in(SOON), new Cancellation());
        try (var accepted = server.accept()) {
            wire.stoppable(true);
            wire.begin(Deadline.in(SOON));
            wire.stop();
            closing.set(true);
            unsettled.giveUp(ErrorCode.CLOSED);
            assertThat(unsettled.keep(wire)).isTrue();
            assertThatThrownBy(() -> writeFor(Duration.ofSeconds(2), accepted))
                    .as("aborted, long before the wait for its end would be over")
                    .isInstanceOf(SocketException.class);
            assertThat(awaiting().get(10, TimeUnit.SECONDS)).isTrue();
        }
    }

    private static void writeFor(Duration time, Socket to) throws IOException {
        var limit = Deadline.in(time);
        while (!limit.passed()) {
            to.getOutputStream().write(0);
        }
    }
}
