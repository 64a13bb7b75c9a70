// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Replays to clients that read, and to clients that do not.
@Timeout(120)
class KvEventReplaysTest {
    private static final int BATCH = 64 << 10;
    private static final int MOST = 1 << 20;

    private final ZContext context = new ZContext();
    private final ZMQ.Socket router = context.createSocket(SocketType.ROUTER);
    private final KvEventReplays replays = new KvEventReplays(router, 1000, MOST);

    @BeforeEach
    void bind() {
        context.setLinger(0);
        router.setLinger(0);
        router.bind("tcp://127.0.0.1:*");
    }

    @AfterEach
    void close() {
        context.close();
    }

    private ZMQ.Socket client(int queued) {
        var client = context.createSocket(SocketType.DEALER);
        client.setLinger(0);
        client.setRcvHWM(queued);
        client.setReceiveBufferSize(BATCH);
        client.setReceiveTimeOut(10);
        client.connect(router.getLastEndpoint());
        return client;
    }

    private static void ask(ZMQ.Socket client, long from) {
        client.sendMore(new byte[0]);
        client.send(ByteBuffer.allocate(Long.BYTES).putLong(from).array(), ZMQ.DONTWAIT);
    }

    /// Numbers of the batches that come until the end.
    private List<Long> read(ZMQ.Socket client) {
        var numbers = new ArrayList<Long>();
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (!limit.passed()) {
            replays.turn();
            if (client.recv() == null) {
                System.gc(); // what clients that are gone had not read
                continue;
            }
            long number = ByteBuffer.wrap(client.recv()).getLong();
            var payload = client.recv();
            if (number < 0) {
                return numbers;
            }
            assertThat(payload).hasSize(BATCH);
            numbers.add(number);
        }
        throw new AssertionError("no end after " + numbers);
    }

    @Test
    void bringEverythingThatIsKeptInOrder() {
        for (long i = 0; i < 100; i++) {
            replays.keep(i, new byte[BATCH]);
        }
        var client = client(1);
        ask(client, 0);
        assertThat(read(client))
                .containsExactly(
                        84L, 85L, 86L, 87L, 88L, 89L, 90L, 91L, 92L, 93L, 94L, 95L, 96L, 97L, 98L,
                        99L);
        ask(client, 98);
        assertThat(read(client)).containsExactly(98L, 99L);
        ask(client, 100);
        assertThat(read(client)).isEmpty();
        assertThat(replays.isBusy()).isFalse();
    }

    @Test
    void takeBoundedMemoryWhoeverDoesNotRead() {
        var stalled = new ArrayList<ZMQ.Socket>();
        for (int i = 0; i < 8; i++) {
            stalled.add(client(1));
        }
        long most = 0;
        for (long i = 0; i < 4000; i++) {
            replays.keep(i, new byte[BATCH]);
            if (i % 16 == 0) {
                stalled.forEach(client -> ask(client, 0));
            }
            if (i % 8 == 0) {
                replays.turn();
            }
            most = Math.max(most, replays.bytes());
        }
        assertThat(most).isBetween((long) MOST - BATCH, 3L * MOST);
        stalled.forEach(ZMQ.Socket::close);
        var client = client(1000);
        ask(client, 3990);
        assertThat(read(client))
                .containsExactly(
                        3990L, 3991L, 3992L, 3993L, 3994L, 3995L, 3996L, 3997L, 3998L, 3999L);
    }
}
