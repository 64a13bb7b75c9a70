// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Failure;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

class LinkSocketTest {
    private static final int MESSAGES = 5000;

    /// A peer that sends many messages while the loop is busy does not grow memory without bound.
    @Test
    void readsNoMoreThanSoManyMessagesAheadOfTheLoop() throws Exception {
        try (var listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            var peer = new LinkSocket("peer", SocketChannel.open(listener.getLocalAddress()));
            var own = new LinkSocket("own", listener.accept());
            var heard = new LinkedBlockingQueue<LinkMessage>();
            var lost = new CompletableFuture<Failure>();
            try {
                own.start(heard::add, lost::complete);
                peer.start(_ -> {}, _ -> {});
                for (int i = 0; i < MESSAGES; i++) {
                    peer.send(new LinkMessage.Cancel(i));
                }
                for (int i = 0; i < MESSAGES; i++) {
                    assertThat(heard.poll(30, TimeUnit.SECONDS))
                            .isEqualTo(new LinkMessage.Cancel(i));
                    assertThat(heard.size()).isLessThanOrEqualTo(LinkSocket.MOST_UNHEARD);
                    if (i == 0) { // it has come to a stop, or is about to
                        awaitSize(heard, LinkSocket.MOST_UNHEARD - 1);
                    }
                    own.heard();
                }
            } finally {
                own.close();
                peer.close();
            }
            assertThat(lost.get(30, TimeUnit.SECONDS)).isNotNull();
        }
    }

    /// One whose link is closed while much waits ends.
    @Test
    void endsWhileItWaitsForTheLoop() throws Exception {
        try (var listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            var peer = new LinkSocket("peer", SocketChannel.open(listener.getLocalAddress()));
            var own = new LinkSocket("own", listener.accept());
            var heard = new LinkedBlockingQueue<LinkMessage>();
            var lost = new CompletableFuture<Failure>();
            own.start(heard::add, lost::complete);
            peer.start(_ -> {}, _ -> {});
            for (int i = 0; i < MESSAGES; i++) {
                peer.send(new LinkMessage.Cancel(i));
            }
            awaitSize(heard, LinkSocket.MOST_UNHEARD);
            own.close();
            assertThat(lost.get(30, TimeUnit.SECONDS)).isNotNull();
            peer.close();
        }
    }

    private static void awaitSize(LinkedBlockingQueue<?> queue, int size) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (queue.size() < size) {
            if (System.nanoTime() - end > 0) {
                throw new IOException("only " + queue.size() + " messages came");
            }
            Thread.onSpinWait();
        }
    }
}
