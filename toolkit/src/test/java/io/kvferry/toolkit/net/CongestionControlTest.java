// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assumptions.assumeThat;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
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

    @Test
    void withinAHostNothingIsPaced() throws Exception {
        connect("127.0.0.1");
        DataSockets.expectBulk(open.getFirst());
        assertThat(CongestionControl.of(SocketDescriptors.find(open.getFirst())).orElseThrow())
                .isIn("reno", "cubic"); // which is what the system may have already
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

    private void connect(String address) throws IOException {
        try (var listener = ServerSocketChannel.open()) {
            try {
                listener.bind(new InetSocketAddress(InetAddress.getByName(address), 0));
            } catch (IOException e) {
                assumeThat(false).as("no %s here: %s", address, e).isTrue();
            }
            open.add(SocketChannel.open(listener.getLocalAddress()));
            open.add(listener.accept());
        }
    }
}
