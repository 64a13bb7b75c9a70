// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.OwnerSession.OpenPuts;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A put that is given up before the owner has answered its first question.
class AbandonedPutTest {
    private static final int SIZE = 100_000;
    private static final Duration LONG = Duration.ofSeconds(50);
    private static final Duration FOR_EVER = Duration.ofHours(1);

    private final Arena arena = Arena.ofShared();
    private final MemorySegment value = arena.allocate(SIZE, 64);
    private final StoreOwner owner = owner();

    @AfterEach
    void close() {
        owner.close();
        arena.close();
    }

    /// One that gives no put up by itself.
    private static StoreOwner owner() {
        var byDefault = StoreConfig.DEFAULT;
        var patient =
                new StoreConfig(
                        byDefault.leaseTime(),
                        true,
                        FOR_EVER,
                        FOR_EVER,
                        byDefault.highWatermark(),
                        byDefault.evictionRatio(),
                        true,
                        byDefault.clientTime(),
                        true,
                        byDefault.heapBytes(),
                        byDefault.clock(),
                        byDefault.tick());
        return StoreOwner.start(
                new StoreOwner.Settings(
                        "127.0.0.1", 0, 1 << 20, patient, FOR_EVER, Optional.empty(), false));
    }

    /// Carries what is sent to a port of its own to the owner's, and the answers back, but those
    /// over a connection to questions about a key and to later ones.
    private static final class Relay implements AutoCloseable {
        private final ServerSocket server =
                new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final int behind;
        private final String key;
        private final Set<Socket> open = ConcurrentHashMap.newKeySet();
        private final CountDownLatch end = new CountDownLatch(1);

        Relay(int behind, String key) throws IOException {
            this.behind = behind;
            this.key = key;
            Thread.ofVirtual().start(this::accept);
        }

        String address() {
            return "127.0.0.1:" + server.getLocalPort();
        }

        private void accept() {
            try {
                while (true) {
                    var near = server.accept();
                    open.add(near);
                    var far = new Socket("127.0.0.1", behind);
                    open.add(far);
                    var held = new AtomicBoolean();
                    Thread.ofVirtual().start(() -> pump(near, far, held, true));
                    Thread.ofVirtual().start(() -> pump(far, near, held, false));
                }
            } catch (IOException _) {
                // Closed by the test.
            }
        }

        private void pump(Socket from, Socket to, AtomicBoolean held, boolean questions) {
            var buffer = new byte[1 << 16];
            try (from;
                    to) {
                for (int n = 0; n >= 0; n = from.getInputStream().read(buffer)) {
                    if (questions && new String(buffer, 0, n, ISO_8859_1).contains(key)) {
                        held.set(true);
                    } else if (!questions && held.get()) {
                        end.await();
                    }
                    to.getOutputStream().write(buffer, 0, n);
                }
            } catch (IOException | InterruptedException _) {
                // The other direction has ended the connection.
            }
        }

        @Override
        public void close() throws IOException {
            end.countDown();
            server.close();
            for (Socket each : open) {
                each.close();
            }
        }
    }

    private static void await(String what, BooleanSupplier condition) {
        var limit = Deadline.in(LONG);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(what).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// With limits that do not decide on a busy machine.
    private static RemoteStoreConfig patient(Relay relay) {
        return new RemoteStoreConfig(
                relay.address(), Optional.empty(), Optional.empty(), false, LONG, LONG);
    }

    private int put(RemoteStore store, String key) {
        var results = new int[1];
        store.put(new StoreBatch().add(key).buffer(value), PutOptions.DEFAULT, results);
        return results[0];
    }

    @Test
    void anInterruptedPutLeavesNoRoomTakenAtTheOwner() throws Exception {
        int port = Integer.parseInt(owner.address().substring(owner.address().indexOf(':') + 1));
        String key = "the key of a put that is given up";
        try (var relay = new Relay(port, key);
                var store = RemoteStore.open(patient(relay), StoreContract.ONE, false)) {
            store.register(value);
            await("there", () -> store.healthCheck() == 0);
            assertThat(put(store, "before")).isZero();
            long before = owner.store().usedBytes();
            var code = new AtomicInteger();
            var putting = Thread.ofPlatform().start(() -> code.set(put(store, key)));
            await("begun", () -> owner.store().usedBytes() > before);
            putting.interrupt();
            putting.join();
            assertThat(code).hasValue(StoreCode.RPC_TIMEOUT.number());
            await("given up", () -> owner.store().usedBytes() == before);
        }
    }

    @Test
    void aBatchThatWasGivenUpWhileItBeganLeavesNoGrant() {
        var session = new OwnerSession(1, owner.store().client(StoreContract.ONE));
        OpenPuts batch = Objects.requireNonNull(begin(session, 7));
        assertThat(session.end(7, false, new int[0])).isEmpty();
        var ended = new AtomicInteger();
        batch.permit(grant(ended));
        session.begun(batch);
        assertThat(ended).hasValue(1);
        assertThat(begin(session, 7)).as("nor may it begin").isNull();
        assertThat(begin(session, 8)).isNotNull();
    }

    @Test
    void aNumberIsThatOfOneBatch() {
        var session = new OwnerSession(1, owner.store().client(StoreContract.ONE));
        var ended = new AtomicInteger();
        OpenPuts batch = Objects.requireNonNull(begin(session, 7));
        batch.permit(grant(ended));
        assertThat(begin(session, 7)).isNull();
        session.begun(batch);
        assertThat(begin(session, 7)).isNull();
        assertThat(ended).hasValue(0);
        assertThat(session.close()).isTrue();
        assertThat(ended).hasValue(1);
    }

    private static @Nullable OpenPuts begin(OwnerSession session, long number) {
        return session.begin(number, 1, Deadline.in(FOR_EVER));
    }

    /// @param ended counts how often it is closed
    private static WriteGrant grant(AtomicInteger ended) {
        return new WriteGrant() {
            @Override
            public long token() {
                return 1;
            }

            @Override
            public void close() {
                ended.incrementAndGet();
            }
        };
    }
}
