// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

class SocketDescriptorsTest {
    /// As that of the JDK's HTTP server when its thread has ended.
    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1", "::1"})
    @SuppressWarnings("try") // it is closed early
    void endsAListenerThatNobodyCanClose(String host) throws Exception {
        Assumptions.assumeTrue(SocketCalls.available(), "needs system calls of Linux");
        var loopback = new InetSocketAddress(InetAddress.getByName(host), 0);
        Assumptions.assumeTrue(
                NetworkInterface.getByInetAddress(loopback.getAddress()) != null,
                () -> "needs " + host);
        try (var selector = Selector.open();
                var listener = listen(loopback)) {
            var address = (InetSocketAddress) listener.getLocalAddress();
            var identity = SocketDescriptors.listener(address);
            assertThat(identity).isNotEmpty();
            try (var client = SocketChannel.open(address);
                    var accepted = listener.accept();
                    var gone = SocketChannel.open(address);
                    var reset = listener.accept()) {
                gone.setOption(StandardSocketOptions.SO_LINGER, 0);
                gone.close();
                listener.configureBlocking(false);
                listener.register(selector, SelectionKey.OP_ACCEPT);
                listener.close();
                assertThatThrownBy(() -> listen(address).close()).isInstanceOf(BindException.class);
                assertThat(SocketDescriptors.endListening(identity)).isTrue();
                listen(address).close();
                client.write(ByteBuffer.wrap(new byte[] {7}));
                assertThat(accepted.read(ByteBuffer.allocate(1))).as("still connected").isOne();
                assertThat(reset.isOpen()).isTrue();
                assertThat(SocketDescriptors.endListening(identity)).isFalse();
            }
        }
    }

    @Test
    void leavesAloneWhoeverHasTheAddressAfterwards() throws Exception {
        Assumptions.assumeTrue(SocketCalls.available(), "needs system calls of Linux");
        var first = listen(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        var address = (InetSocketAddress) first.getLocalAddress();
        var identity = SocketDescriptors.listener(address);
        first.close();
        assertThat(SocketDescriptors.listener(address)).isEmpty();
        try (var second = listen(address)) {
            assertThat(SocketDescriptors.endListening(identity)).isFalse();
            assertThat(SocketDescriptors.endListening("")).isFalse();
            try (var client = SocketChannel.open(address);
                    var accepted = second.accept()) {
                assertThat(accepted.getRemoteAddress()).isEqualTo(client.getLocalAddress());
                assertThat(SocketDescriptors.listener(address)).isNotEmpty().isNotEqualTo(identity);
            }
        }
    }

    private static ServerSocketChannel listen(InetSocketAddress address) throws IOException {
        var channel = ServerSocketChannel.open();
        try {
            return channel.bind(address);
        } catch (IOException e) {
            channel.close();
            throw e;
        }
    }
}
