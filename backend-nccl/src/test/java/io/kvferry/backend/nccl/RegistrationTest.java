// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.config.KvRole;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/// What a proxy hears of an engine that registers.
class RegistrationTest {
    private static final long SOON_SECONDS = 60;

    /// The network before a proxy. It holds the first connection until the test releases it.
    private static final class SlowStart implements AutoCloseable {
        private final ServerSocket listener =
                new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
        private final int target;
        final CompletableFuture<Void> came = new CompletableFuture<>();
        final CompletableFuture<Void> released = new CompletableFuture<>();

        /// The client has closed the first connection.
        final CompletableFuture<Void> ended = new CompletableFuture<>();

        SlowStart(int target) throws IOException {
            this.target = target;
            Thread.startVirtualThread(() -> {
                try {
                    var first = listener.accept();
                    came.complete(null);
                    Thread.startVirtualThread(() -> {
                        released.join();
                        join(first);
                        ended.complete(null);
                    });
                    while (true) {
                        var next = listener.accept();
                        Thread.startVirtualThread(() -> join(next));
                    }
                } catch (IOException _) {
                    return; // the test is over
                }
            });
        }

        PeerAddress address() {
            return new PeerAddress("127.0.0.1", listener.getLocalPort());
        }

        private void join(Socket client) {
            try (client;
                    var server = new Socket(InetAddress.getLoopbackAddress(), target)) {
                Thread.startVirtualThread(() -> copy(server, client));
                copy(client, server);
            } catch (IOException _) {
                return; // either end has closed it
            }
        }

        private static void copy(Socket from, Socket to) {
            try {
                from.getInputStream().transferTo(to.getOutputStream());
            } catch (IOException _) {
                return; // as above
            }
        }

        @Override
        public void close() throws IOException {
            listener.close();
        }
    }

    /// A proxy would list the engine again, until it has not heard of it for a while.
    @Test
    void aPingThatHasNotLeftYetIsNotSentAfterTheGoodbye() throws Exception {
        List<VllmMessage> heard = new CopyOnWriteArrayList<>();
        try (var proxy = new SideChannel("proxy");
                var channel = new SideChannel("engine")) {
            var at =
                    proxy.listen(
                            "127.0.0.1",
                            (asker, message) -> {
                                heard.add(VllmMessage.decode(message));
                                asker.answer(message);
                            });
            try (var network = new SlowStart(URI.create(at).getPort())) {
                var registration =
                        Registration.begin(
                                channel,
                                new P2pSettings.Proxy(network.address(), 8000),
                                KvRole.PRODUCER,
                                "127.0.0.1",
                                "127.0.0.1:21001");
                await(network.came);
                registration.end();
                network.released.complete(null);
                await(network.ended);
            }
            assertThat(heard)
                    .containsExactly(new VllmMessage.Goodbye("127.0.0.1:8000", "127.0.0.1:21001"));
        }
    }

    private static void await(CompletableFuture<Void> event) {
        event.orTimeout(SOON_SECONDS, TimeUnit.SECONDS).join();
    }
}
