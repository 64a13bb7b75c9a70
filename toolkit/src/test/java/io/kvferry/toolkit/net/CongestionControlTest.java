// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assumptions.assumeThat;

import jdk.net.ExtendedSocketOptions;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

@EnabledOnOs(value = OS.LINUX, disabledReason = "TCP_CONGESTION is an option of Linux")
class CongestionControlTest {
    private final List<SocketChannel> open = new ArrayList<>();

    @AfterEach
    void close() throws IOException {
        for (var each : open) {
            each.close();
        }
    }

    /// Both ends of each are in this process, so two descriptors differ in the order of their
    /// addresses alone.
    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1", "::1"})
    void findsOneConnectionAmongMany(String address) throws Exception {
        for (int i = 0; i < 20; i++) {
            connect(address);
        }
        String before = CongestionControl.of(SocketDescriptors.find(open.getFirst())).orElseThrow();
        assertThat(before).isEqualTo(system());
        for (int chosen : new int[] {0, 17, 38, 39}) {
            assertThat(CongestionControl.set(SocketDescriptors.find(open.get(chosen)), "reno"))
                    .isTrue();
        }
        for (int i = 0; i < open.size(); i++) {
            assertThat(CongestionControl.of(SocketDescriptors.find(open.get(i))))
                    .as("connection %d", i)
                    .hasValue(i == 0 || i == 17 || i >= 38 ? "reno" : before);
        }
    }

    @Test
    void findsAConnectionOfTheOlderAddressFamilyAlone() throws Exception {
        try (var listener = ServerSocketChannel.open(StandardProtocolFamily.INET)) {
            listener.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
            var channel = SocketChannel.open(StandardProtocolFamily.INET);
            open.add(channel);
            channel.connect(listener.getLocalAddress());
            assertThat(CongestionControl.set(SocketDescriptors.find(channel), "reno")).isTrue();
            assertThat(CongestionControl.of(SocketDescriptors.find(channel))).hasValue("reno");
        }
    }

    /// What a connection has at its begin decides whether it is paced, whatever it is given later.
    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1", "::1"})
    void connectionsWithinAHostBeginUnpaced(String address) throws Exception {
        var paced = new CongestionControl(system(), true);
        try (var listener = listen(address)) {
            paced.unpace(listener);
            for (int i = 0; i < 3; i++) {
                var channel = SocketChannel.open();
                open.add(channel);
                paced.unpace(channel, InetAddress.getByName(address));
                channel.connect(listener.getLocalAddress());
                open.add(listener.accept());
            }
        }
        for (var each : open) {
            assertThat(control(each)).isEqualTo("reno");
            paced.settle(each, () -> find(each));
            assertThat(control(each)).isEqualTo("reno");
        }
    }

    /// Two loopback addresses stand for two hosts.
    @Test
    void aConnectionOfAnotherHostGetsTheSystemsControlBack() throws Exception {
        var paced = new CongestionControl(system(), true);
        try (var listener = listen("127.0.0.2")) {
            paced.unpace(listener);
            open.add(SocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0)));
            open.getFirst().connect(listener.getLocalAddress());
            open.add(listener.accept());
        }
        assertThat(open).map(CongestionControlTest::control).containsExactly(system(), "reno");
        open.forEach(each -> paced.settle(each, () -> find(each)));
        assertThat(open).map(CongestionControlTest::control).containsOnly(system());
    }

    @Test
    void whatTheProcessMayNotChooseIsNotTakenAway() throws Exception {
        var paced = new CongestionControl("no such thing", true);
        try (var listener = listen("127.0.0.1")) {
            paced.unpace(listener);
            assertThat(CongestionControl.of(SocketDescriptors.find(listener))).hasValue(system());
        }
    }

    @Test
    void withoutPacingNothingIsChanged() throws Exception {
        var unpaced = new CongestionControl(system(), false);
        try (var listener = listen("127.0.0.1");
                var channel = SocketChannel.open()) {
            unpaced.unpace(listener);
            unpaced.unpace(channel, InetAddress.getLoopbackAddress());
            assertThat(CongestionControl.of(SocketDescriptors.find(listener))).hasValue(system());
            assertThat(CongestionControl.of(SocketDescriptors.findUnconnected(channel)))
                    .hasValue(system());
        }
    }

    /// While others search as well, and among sockets that look the same.
    @Test
    void findsSocketsWithoutAnAddress() throws Exception {
        for (int i = 0; i < 40; i++) {
            open.add(SocketChannel.open());
        }
        int idle = open.getFirst().getOption(ExtendedSocketOptions.TCP_KEEPIDLE);
        var found = open.parallelStream().map(CongestionControlTest::findUnconnected).distinct();
        assertThat(found).hasSize(40).allMatch(descriptor -> descriptor >= 0);
        CongestionControl.set(SocketDescriptors.findUnconnected(open.get(17)), "reno");
        try (var listener = listen("127.0.0.1")) {
            for (var each : open) {
                assertThat(each.getOption(ExtendedSocketOptions.TCP_KEEPIDLE)).isEqualTo(idle);
                each.connect(listener.getLocalAddress());
                listener.accept().close();
            }
        }
        for (int i = 0; i < open.size(); i++) {
            assertThat(control(open.get(i))).isEqualTo(i == 17 ? "reno" : system());
        }
    }

    @Test
    void connectsForBlocks() throws Exception {
        try (var listener = listen("127.0.0.1");
                var channel = SocketChannel.open()) {
            DataSockets.expectConnections(listener);
            DataSockets.connect(channel, (InetSocketAddress) listener.getLocalAddress(), 5_000);
            try (var accepted = listener.accept()) {
                assertThat(control(channel)).isIn("reno", "cubic"); // the system may have that
                assertThat(control(accepted)).isEqualTo(control(channel));
            }
            assertThat(channel.getOption(StandardSocketOptions.TCP_NODELAY)).isTrue();
        }
    }

    @Test
    void whatTheKernelDoesNotKnowIsRefused() throws Exception {
        connect("127.0.0.1");
        assertThat(CongestionControl.set(SocketDescriptors.find(open.getFirst()), "no such thing"))
                .isFalse();
        assertThat(CongestionControl.of(SocketDescriptors.find(open.getFirst())))
                .hasValue(system());
    }

    @Test
    void aClosedConnectionIsLeftAlone() throws Exception {
        connect("127.0.0.1");
        var closed = open.getFirst();
        closed.close();
        assertThatCode(() -> DataSockets.expectBulk(closed)).doesNotThrowAnyException();
    }

    private static String system() throws IOException {
        return Files.readString(Path.of("/proc/sys/net/ipv4/tcp_congestion_control")).strip();
    }

    private static String control(SocketChannel channel) {
        return CongestionControl.of(find(channel)).orElseThrow();
    }

    private static int find(SocketChannel channel) {
        try {
            return SocketDescriptors.find(channel);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static int findUnconnected(SocketChannel channel) {
        try {
            return SocketDescriptors.findUnconnected(channel);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static ServerSocketChannel listen(String address) throws IOException {
        var listener = ServerSocketChannel.open();
        try {
            listener.bind(new InetSocketAddress(InetAddress.getByName(address), 0));
        } catch (IOException e) {
            listener.close();
            assumeThat(false).as("no %s here: %s", address, e).isTrue();
        }
        return listener;
    }

    private void connect(String address) throws IOException {
        try (var listener = listen(address)) {
            open.add(SocketChannel.open(listener.getLocalAddress()));
            open.add(listener.accept());
        }
    }
}
