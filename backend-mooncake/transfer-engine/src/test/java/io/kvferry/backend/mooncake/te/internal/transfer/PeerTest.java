// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument.Extension;
import io.kvferry.backend.mooncake.te.internal.tcp.DataClient;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.backend.mooncake.te.internal.tcp.Wire;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

class PeerTest {
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final Duration LONG = Duration.ofHours(1);
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final Path DESCRIPTORS = Path.of("/proc/self/fd");
    private static final Path FLAGS = Path.of("/proc/self/fdinfo");

    /// Of Linux's fcntl.h.
    private static final int O_NONBLOCK = 04000;

    /// A job that has nothing to do.
    static final class Idle implements DataClient.Job {
        @Override
        public boolean write() {
            return false;
        }

        @Override
        public long capability() {
            return 0;
        }

        @Override
        public boolean ended() {
            return false;
        }

        @Override
        public Wire connect() throws IOException {
            throw new IOException("not asked for");
        }

        @Override
        public void disconnect(Wire wire) {
            wire.close();
        }
    }

    private static Peer peer(int port, Watchdog watchdog) {
        return peer(port, EngineConfig.defaults(), watchdog);
    }

    static Peer peer(int port, EngineConfig config, Watchdog watchdog) {
        return peer(port, config, watchdog, Extension.NONE);
    }

    private static Peer peer(
            int port, EngineConfig config, Watchdog watchdog, Extension extension) {
        return new Peer(
                "there",
                new SegmentDocument("there", "tcp", port, 2, List.of(), extension),
                new HostPort("127.0.0.1", port),
                config,
                watchdog);
    }

    /// A transfer has no more time than its caller gives it, also for the proof of the secret.
    @Test
    void aPeerThatTakesConnectionsAndSaysNothingCostsNoMoreThanTheDeadline(@TempDir Path folder)
            throws Exception {
        var secret = folder.resolve("secret");
        Files.writeString(secret, "0123456789abcdef0123456789abcdef");
        var config =
                EngineConfig.from(
                        Map.of(
                                "secret-file",
                                secret.toString(),
                                "connect-timeout-ms",
                                "600000",
                                "stall-timeout-ms",
                                "600000"));
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), config, watchdog);
            var ended = new CompletableFuture<Throwable>();
            Thread.ofPlatform()
                    .daemon()
                    .start(() -> {
                        try (var _ =
                                peer.connect(
                                        Deadline.in(Duration.ofMillis(500)), new Cancellation())) {
                            ended.complete(new AssertionError("connected"));
                        } catch (IOException e) {
                            ended.complete(e);
                        }
                    });
            assertThat(ended.get(30, TimeUnit.SECONDS)).isInstanceOf(IOException.class);
            peer.drop();
        }
    }

    /// Decoders come and go, each at ports of its own: nothing is sent to those that went.
    @Test
    void connectionsThatThePeerHasClosedDoNotStay() throws Exception {
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), watchdog);
            var lane = peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
            var accepted = server.accept();
            peer.giveBack(lane, true);
            assertThat(peer.lanes()).isEqualTo(1);
            peer.sweep(Duration.ZERO, LONG);
            assertThat(peer.lanes()).as("of a peer that is there").isEqualTo(1);
            accepted.close();
            var limit = Deadline.in(SOON);
            while (peer.lanes() > 0) {
                assertThat(limit.passed()).isFalse();
                peer.sweep(LONG, LONG);
                assertThat(peer.lanes()).as("used a moment ago").isEqualTo(1);
                Thread.yield();
                peer.sweep(Duration.ZERO, LONG);
            }
            assertThat(peer.isUnused(Duration.ZERO)).isTrue();
            peer.drop();
        }
    }

    /// Whoever looks at a resting connection leaves a socket that blocks, so that each wait of a
    /// transfer is one call.
    @Test
    void connectionsBlockAfterTheyWereLookedAt() throws Exception {
        Assumptions.assumeTrue(Files.isReadable(FLAGS), "flags by Linux's /proc");
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), watchdog);
            var before = nonBlocking();
            peer.giveBack(peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation()), true);
            PeerTable.sweeper(() -> peer.sweep(Duration.ZERO, LONG)).join();
            assertThat(peer.lanes()).isEqualTo(1);
            assertThat(before).containsAll(nonBlocking());
            peer.drop();
        }
    }

    /// The sockets of this process that do not block.
    private static Set<String> nonBlocking() throws IOException {
        var found = new HashSet<String>();
        try (var descriptors = Files.list(DESCRIPTORS)) {
            for (var each : descriptors.toList()) {
                try {
                    var socket = Files.readSymbolicLink(each).toString();
                    if (socket.startsWith("socket:") && (flags(each) & O_NONBLOCK) != 0) {
                        found.add(socket);
                    }
                } catch (NoSuchFileException e) {
                    continue; // closed meanwhile, as that of the list itself
                }
            }
        }
        return found;
    }

    private static int flags(Path descriptor) throws IOException {
        try (var lines = Files.lines(FLAGS.resolve(descriptor.getFileName()))) {
            return lines.filter(line -> line.startsWith("flags:"))
                    .mapToInt(line -> Integer.parseInt(line.substring(6).strip(), 8))
                    .sum();
        }
    }

    /// A refusal says that nobody listens there, and nothing of another address of the host.
    @Test
    void aRefusalByOneAddressDoesNotHideWhatElseWentWrong() throws Exception {
        int nobody;
        try (var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            nobody = server.getLocalPort();
        }
        try (var watchdog = new Watchdog("test")) {
            var peer = peer(nobody, watchdog);
            var refuses = InetAddress.getByName("127.0.0.1");
            var other = InetAddress.getByName("224.0.0.1"); // no connection goes to many hosts
            for (var addresses :
                    List.of(
                            new InetAddress[] {other, refuses},
                            new InetAddress[] {refuses, other})) {
                assertThatThrownBy(() ->
                                peer.connect(addresses, Deadline.in(SOON), new Cancellation()))
                        .isInstanceOf(IOException.class)
                        .isNotInstanceOf(ConnectException.class);
            }
            assertThatThrownBy(() ->
                            peer.connect(
                                    new InetAddress[] {refuses, refuses},
                                    Deadline.in(SOON),
                                    new Cancellation()))
                    .isInstanceOf(ConnectException.class);
            peer.drop();
        }
    }

    @Test
    void connectionsThatRestForLongEndAndAreMadeAnew() throws Exception {
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 2, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), watchdog);
            peer.giveBack(peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation()), true);
            assertThat(peer.isUnused(Duration.ZERO)).isFalse();
            try (var accepted = server.accept()) {
                peer.sweep(Duration.ZERO, Duration.ZERO);
                assertThat(peer.lanes()).isZero();
                assertThat(accepted.getInputStream().read()).as("its end").isEqualTo(-1);
            }
            peer.giveBack(peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation()), true);
            assertThat(peer.lanes()).isEqualTo(1);
            peer.drop();
        }
    }

    /// Its last bytes may come in time for the transfer, and too late for the watchdog, which ends
    /// it a little later.
    @Test
    void aConnectionWhoseTimeWasUpIsNotUsedAgain() throws Exception {
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 2, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), watchdog);
            var late = peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
            late.wire.begin(Deadline.in(Duration.ZERO));
            var limit = Deadline.in(SOON);
            while (!late.wire.isExpired()) {
                assertThat(limit.passed()).isFalse();
                Thread.onSpinWait();
            }
            peer.giveBack(late, true);
            assertThat(peer.lanes()).isZero();
            var next = peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
            assertThat(next.wire.isExpired()).isFalse();
            peer.giveBack(next, true);
            peer.drop();
        }
    }

    /// It would pass for the answer to the next batch.
    @Test
    void aConnectionOnWhichABatchPeerSentWhatNobodyAskedForIsNotUsedAgain() throws Exception {
        var extension = new Extension(Extension.VERSION, INCARNATION, false);
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 2, InetAddress.getLoopbackAddress())) {
            var peer = peer(server.getLocalPort(), EngineConfig.defaults(), watchdog, extension);
            var lane = peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
            try (var accepted = server.accept()) {
                peer.giveBack(lane, true);
                accepted.getOutputStream().write(new byte[64]); // when the transfer is over
                var limit = Deadline.in(SOON);
                while (!lane.wire.hasUnasked()) {
                    assertThat(limit.passed()).isFalse();
                    Thread.onSpinWait();
                }
                var next = peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
                assertThat(next).isNotSameAs(lane);
                assertThat(peer.lanes()).isEqualTo(1);
                peer.giveBack(next, true);
                peer.drop();
            }
        }
    }

    /// However the connections came back.
    @Test
    void aThreadGetsTheConnectionThatItUsedLast() throws Exception {
        try (var watchdog = new Watchdog("test");
                var server = new ServerSocket(0, 2, InetAddress.getLoopbackAddress());
                var helper = Executors.newSingleThreadExecutor()) {
            var peer = peer(server.getLocalPort(), watchdog);
            Callable<Peer.Lane> borrow =
                    () -> peer.borrow(Deadline.in(SOON), new Idle(), new Cancellation());
            var own = borrow.call();
            var helpers = helper.submit(borrow).get();
            for (int i = 0; i < 4; i++) {
                if (i % 2 == 0) {
                    peer.giveBack(own, true);
                }
                helper.submit(() -> peer.giveBack(helpers, true)).get();
                if (i % 2 == 1) {
                    peer.giveBack(own, true);
                }
                if (i < 2) {
                    assertThat(borrow.call()).isSameAs(own);
                    assertThat(helper.submit(borrow).get()).isSameAs(helpers);
                } else {
                    assertThat(helper.submit(borrow).get()).isSameAs(helpers);
                    assertThat(borrow.call()).isSameAs(own);
                }
            }
            assertThat(peer.lanes()).isEqualTo(2);
            peer.drop();
            peer.giveBack(own, true);
            peer.giveBack(helpers, true);
        }
    }
}
