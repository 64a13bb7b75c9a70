// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.FairRoom;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;

/// The threads of connections that ask often, and what is answered on them.
class RouterThreadsTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final int ROOM = 1 << 20;

    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
    private final List<AutoCloseable> open = new ArrayList<>();

    /// Answers as many bytes as the request says in units of 64 KiB, and whether it has a thread.
    private static final class Answering implements SideChannel.Requests {
        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            var answer = new byte[1 + message[0] * (64 << 10)];
            answer[0] = (byte) (asker.hasThread() ? 1 : 0);
            asker.answerHere(answer);
        }

        @Override
        public boolean answersHere() {
            return true;
        }
    }

    @AfterEach
    void close() throws Exception {
        for (var each : open.reversed()) {
            each.close();
        }
        clock.shutdownNow();
    }

    private RouterPort port(ThreadFactory threads) throws IOException {
        var listener =
                ServerSocketChannel.open()
                        .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        var port =
                new RouterPort(
                        "test",
                        listener,
                        "127.0.0.1",
                        Optional.empty(),
                        new Answering(),
                        clock,
                        1000,
                        new FairRoom(Integer.MAX_VALUE, ROOM),
                        new ByteBudget(ROOM),
                        threads);
        open.add(port);
        return port;
    }

    private Requester requester(RouterPort port) {
        var requester = new Requester("test", port.address(), Optional.empty());
        open.add(requester);
        return requester;
    }

    private static byte[] ask(Requester requester, int size) {
        return requester.ask(new byte[] {(byte) size}, LONG, LONG);
    }

    private static void askUntilOnThread(Requester requester) {
        // Requesters end connections that have rested for 30 s.
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (ask(requester, 0)[0] == 0) {
            assertThat(limit.passed()).isFalse();
        }
    }

    @Test
    void aConnectionForWhichThereIsNoThreadGoesOnWithoutOne() throws Exception {
        var port =
                port(run ->
                        new Thread(run) {
                            @Override
                            public void start() {
                                throw new OutOfMemoryError("no thread, says the test");
                            }
                        });
        var requester = requester(port);
        for (int i = 0; i < 3 * RouterPort.MOST_THREADS; i++) {
            assertThat(ask(requester, 0)).isEqualTo(new byte[1]);
        }
        assertThat(port.connections()).isEqualTo(1);
    }

    @Test
    void connectionsThatAskNothingGiveTheirThreadsBack() throws Exception {
        var port = port(Thread.ofPlatform().daemon().factory());
        for (int i = 0; i < RouterPort.MOST_THREADS; i++) {
            askUntilOnThread(requester(port));
        }
        askUntilOnThread(requester(port));
    }

    @Test
    void answersOfThreadsCountAsUnsent() throws Exception {
        var port = port(Thread.ofPlatform().daemon().factory());
        var requester = requester(port);
        askUntilOnThread(requester);
        assertThat(ask(requester, 15)).hasSize(1 + 15 * (64 << 10));
        askUntilOnThread(requester); // again, where a pause of the machine was a rest
        assertThatThrownBy(() -> ask(requester, 32)).isInstanceOf(KvFerryException.class);
        var limit = Deadline.in(LONG);
        while (port.unsent() > 0) {
            assertThat(limit.passed()).isFalse();
            Thread.onSpinWait();
        }
    }
}
