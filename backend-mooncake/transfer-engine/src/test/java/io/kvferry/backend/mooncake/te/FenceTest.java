// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// What of a WRITE that ended early still arrives.
@SuppressWarnings("NullAway.Init")
class FenceTest {
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final Map<String, String> TCP = Map.of("shared-memory", "false");

    private JavaTransferEngine here;
    private JavaTransferEngine there;

    @BeforeEach
    void start() {
        here = JavaTransferEngine.start(EngineConfig.from(TCP));
        there = JavaTransferEngine.start(EngineConfig.from(TCP));
    }

    @AfterEach
    void close() {
        here.close();
        there.close();
    }

    private static void await(RegisteredMemory memory, long offset, int expected) {
        var limit = Deadline.in(SOON);
        while (memory.memory().get(ValueLayout.JAVA_BYTE, offset) != expected) {
            assertThat(limit.passed()).as("byte %d arrives", offset).isFalse();
            Thread.yield();
        }
    }

    private static int code(byte[] status) {
        return status[0] & 0xFF | (status[1] & 0xFF) << 8 | (status[2] & 0xFF) << 16;
    }

    @Test
    void aFenceEndsWhoIsInTheMiddleAndRefusesWhatComesLater() throws Exception {
        var far = there.allocate(1 << 16);
        int port = DataPortTest.dataPort(there);
        try (var middle = new RawSocket(port);
                var other = new RawSocket(port);
                var asking = new RawSocket(port);
                var late = new RawSocket(port)) {
            middle.send(RawSocket.batchWrite(there, 0, 77, far.address(), 1000));
            middle.send(new byte[] {7});
            await(far, 0, 7);
            other.send(RawSocket.batchWrite(there, 0, 78, far.address() + 2000, 4));
            other.send(new byte[] {8, 8});
            await(far, 2001, 8);

            asking.send(RawSocket.fence(there, 77));
            assertThat(code(asking.receive(16))).isZero();
            assertThat(middle.drain()).as("cut off").isEmpty();

            late.send(RawSocket.batchWrite(there, 0, 77, far.address(), 1)).send(new byte[] {9});
            assertThat(code(late.receive(16))).isEqualTo(ErrorCode.CANCELLED.wire());
            assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 0)).isEqualTo((byte) 7);

            other.send(new byte[] {8, 8});
            assertThat(code(other.receive(16))).as("another transfer goes on").isZero();
        }
    }

    /// Token 0 is that of every READ, and of every connection that rests.
    @Test
    void aFenceWithoutATokenEndsNobody() throws Exception {
        var near = here.allocate(4096);
        var far = there.allocate(4096);
        int port = DataPortTest.dataPort(there);
        try (var resting = new RawSocket(port);
                var asking = new RawSocket(port)) {
            byte[] read = RawSocket.header(16, far.address(), DataFrames.READ | DataFrames.V2);
            assertThat(resting.send(read).receive(8 + 16)).startsWith(0, 0, 0, 0);

            asking.send(RawSocket.fence(there, 0));
            assertThat(code(asking.receive(16))).isEqualTo(ErrorCode.PROTOCOL.wire());
            assertThat(resting.send(read).receive(8 + 16)).startsWith(0, 0, 0, 0);
            var request =
                    EngineRequest.read(
                            there.info().segmentName(),
                            Ranges.of(near.address(), far.address(), 4096),
                            Deadline.in(SOON));
            assertThat(here.transfer(request)).isInstanceOf(Completed.class);
        }
    }

    @Test
    void cancelledWritesChangeNothingOnceTheyAreQuiet() throws Exception {
        cancelWrites(24, 8 << 20);
    }

    @ParameterizedTest
    @Tag("soak")
    @CsvSource({"400, 64", "40, 256"})
    void manyCancelledWritesChangeNothingOnceTheyAreQuiet(int rounds, int mebibytes)
            throws Exception {
        cancelWrites(rounds, mebibytes << 20);
    }

    /// The other engine as one without the extension: it applies what it has got at its own pace.
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void cancelledWritesToPeersWithoutTheExtensionChangeNothingOnceTheyAreQuiet(int version)
            throws Exception {
        restartWithoutExtension(version);
        cancelWrites(12, 16 << 20);
    }

    @ParameterizedTest
    @Tag("soak")
    @ValueSource(ints = {1, 2})
    void manyCancelledWritesToPeersWithoutTheExtensionChangeNothing(int version) throws Exception {
        restartWithoutExtension(version);
        cancelWrites(40, 256 << 20);
    }

    private void restartWithoutExtension(int version) {
        there.close();
        there =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of(
                                        "extension",
                                        "false",
                                        "protocol-version",
                                        String.valueOf(version))));
    }

    /// Each cancelled at a random moment; as soon as it is quiet the memory gets other bytes, which
    /// must be there when the next one has run.
    private void cancelWrites(int rounds, int bytes) throws Exception {
        var near = here.allocate(bytes);
        near.memory().fill((byte) 0x55);
        var far = new RegisteredMemory[] {there.allocate(bytes), there.allocate(bytes)};
        var random = new Random(11);
        int cancelled = 0;
        int round = 0;
        // On a busy machine this thread may come too late each time.
        for (; round < rounds || cancelled == 0 && round < 20 * rounds; round++) {
            var target = far[round % 2];
            var transfer =
                    here.submit(
                            EngineRequest.write(
                                    there.info().segmentName(),
                                    Ranges.of(near.address(), target.address(), bytes),
                                    Deadline.in(SOON)));
            LockSupport.parkNanos(random.nextLong(bytes / 4));
            transfer.cancel();
            transfer.quiesced().toCompletableFuture().get(30, TimeUnit.SECONDS);
            target.memory().fill((byte) 0x11);
            if (!(transfer.outcome().toCompletableFuture().join() instanceof Completed)) {
                cancelled++;
            }
            if (round > 0) {
                assertUnchanged(far[(round + 1) % 2], "before round " + round);
            }
        }
        assertUnchanged(far[(round + 1) % 2], "last");
        assertThat(cancelled).as("cancelled in time").isPositive();
    }

    private static void assertUnchanged(RegisteredMemory memory, String which) {
        for (long at = 0; at < memory.memory().byteSize(); at += 8) {
            if (memory.memory().get(ValueLayout.JAVA_LONG, at) != 0x1111111111111111L) {
                throw new AssertionError(which + ": changed at " + at);
            }
        }
    }

    /// Peers without the extension cannot be asked to refuse the rest. Each applies what it has got
    /// in its own time, with protocol version 1 after it was used to keep connections open.
    @ParameterizedTest
    @CsvSource({"1, 8", "2, 8", "1, 8388608", "2, 8388608"})
    void aCancelledWriteIsQuietWhenTheOtherSideHasAppliedWhatItGot(int version, int bytes)
            throws Exception {
        for (int tries = 1; !quietWhenApplied(version, bytes); tries++) {
            assertThat(tries).as("times that it took too long").isLessThan(5);
        }
    }

    /// False where the other side was not done for about as long as an engine waits for it.
    private boolean quietWhenApplied(int version, int bytes) throws Exception {
        var began = new CompletableFuture<Void>();
        var applying = new AtomicInteger();
        try (var peer =
                ScriptedPeer.withData(
                        version, (in, out) -> applySlowly(in, out, began, applying))) {
            var near = here.allocate(bytes);
            var transfer =
                    here.submit(
                            EngineRequest.write(
                                    peer.name(),
                                    Ranges.of(near.address(), 0x1000, bytes),
                                    Deadline.in(SOON)));
            began.get(30, TimeUnit.SECONDS);
            long cancelled = System.nanoTime();
            transfer.cancel();
            assertThat(transfer.outcome().toCompletableFuture().get(30, TimeUnit.SECONDS))
                    .isInstanceOf(EngineOutcome.Failed.class);
            transfer.quiesced().toCompletableFuture().get(30, TimeUnit.SECONDS);
            int still = applying.get();
            if (System.nanoTime() - cancelled > TimeUnit.SECONDS.toNanos(4)) { // of five
                return false;
            }
            assertThat(still).as("connections that are still read").isZero();
            return true;
        }
    }

    /// Answers READs with zeros, takes a WRITE without ever answering.
    private static void applySlowly(
            InputStream in, OutputStream out, CompletableFuture<Void> began, AtomicInteger applying)
            throws IOException {
        byte[] head = in.readNBytes(DataFrames.HEADER);
        while (head.length == DataFrames.HEADER && (head[16] & 1) == 0) {
            out.write(new byte[head[0]]);
            head = in.readNBytes(DataFrames.HEADER);
        }
        if (head.length == 0) {
            return;
        }
        applying.incrementAndGet();
        try {
            began.complete(null);
            do {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
            } while (in.readNBytes(1 << 18).length > 0);
        } finally {
            applying.decrementAndGet();
        }
    }

    /// The peer takes a request over a connection that has been used before, hangs up without an
    /// answer, and would apply it later.
    @Test
    void aWriteOnAStaleConnectionIsNotRepeatedWhereItCannotBeFenced() throws Exception {
        var requests = new AtomicInteger();
        try (var peer =
                ScriptedPeer.withData(
                        2,
                        (in, out) -> {
                            var reader = new DataInputStream(in);
                            try {
                                while (true) {
                                    reader.readFully(new byte[DataFrames.HEADER + 8]);
                                    if (requests.incrementAndGet() == 2) {
                                        return;
                                    }
                                    out.write(new byte[] {0, 0, 0, 0, 'V', 'T', 'C', 'M'});
                                }
                            } catch (EOFException _) {
                                // The engine has closed.
                            }
                        })) {
            var near = here.allocate(4096);
            assertThat(here.transfer(write(peer, near))).isInstanceOf(Completed.class);
            assertThat(here.transfer(write(peer, near)))
                    .isInstanceOfSatisfying(
                            EngineOutcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.PEER_LOST));
            assertThat(requests).hasValue(2);
            assertThat(here.transfer(write(peer, near))).isInstanceOf(Completed.class);
        }
    }

    /// The same, of a kvferry peer: what it has of the first attempt is refused before the second
    /// one begins.
    @Test
    void aWriteOnAStaleConnectionIsFencedBeforeItIsRepeated() throws Exception {
        var said = new LinkedBlockingQueue<String>();
        try (var peer =
                ScriptedPeer.ofKvferry(
                        "0123456789abcdef0123456789abcdef",
                        (in, out) -> {
                            var reader = new DataInputStream(in);
                            try {
                                for (int i = 0; ; i++) {
                                    byte[] head = reader.readNBytes(DataFrames.HEADER);
                                    byte[] batch = reader.readNBytes(DataFrames.BATCH_HEADER);
                                    if (batch.length < DataFrames.BATCH_HEADER) {
                                        return; // The engine has closed.
                                    }
                                    boolean fence = (head[16] & 0xFF) == DataFrames.FENCE;
                                    if (!fence) {
                                        reader.readFully(new byte[DataFrames.BATCH_ENTRY + 8]);
                                    }
                                    long token =
                                            ByteBuffer.wrap(batch)
                                                    .order(ByteOrder.LITTLE_ENDIAN)
                                                    .getLong(16);
                                    said.add((fence ? "fence " : "write ") + token);
                                    if (said.size() == 2) {
                                        return;
                                    }
                                    byte[] done = {0, 0, 0, 0, 'Y', 'F', 'V', 'K'};
                                    out.write(Arrays.copyOf(done, 64));
                                }
                            } catch (EOFException _) {
                                // The engine has closed.
                            }
                        })) {
            var near = here.allocate(4096);
            assertThat(here.transfer(write(peer, near))).isInstanceOf(Completed.class);
            assertThat(here.transfer(write(peer, near))).isInstanceOf(Completed.class);
            var order = List.copyOf(said);
            assertThat(order).hasSize(4);
            assertThat(order.get(2)).isEqualTo(order.get(1).replace("write", "fence"));
            assertThat(order.get(3)).startsWith("write ").isNotEqualTo(order.get(1));
        }
    }

    /// An interrupt closes the socket that the thread waits in, and each one that it opens while it
    /// counts as interrupted.
    @Test
    void aWriteOfAnInterruptedThreadIsFencedBeforeItReturns() throws Exception {
        var token = new CompletableFuture<Long>();
        var fenced = new CompletableFuture<Long>();
        try (var peer =
                ScriptedPeer.ofKvferry(
                        "0123456789abcdef0123456789abcdef",
                        (in, out) -> {
                            var reader = new DataInputStream(in);
                            byte[] head = reader.readNBytes(DataFrames.HEADER);
                            long named =
                                    ByteBuffer.wrap(reader.readNBytes(DataFrames.BATCH_HEADER))
                                            .order(ByteOrder.LITTLE_ENDIAN)
                                            .getLong(16);
                            if ((head[16] & 0xFF) == DataFrames.FENCE) {
                                fenced.complete(named);
                                byte[] done = {0, 0, 0, 0, 'Y', 'F', 'V', 'K'};
                                out.write(Arrays.copyOf(done, 64));
                            } else {
                                token.complete(named);
                            }
                            var _ = in.read(new byte[1 << 10]); // until the engine closes
                            var _ = in.readAllBytes();
                        })) {
            var near = here.allocate(4096);
            var outcome = new CompletableFuture<EngineOutcome>();
            var caller =
                    Thread.ofPlatform()
                            .start(() -> {
                                var end = here.transfer(write(peer, near));
                                assertThat(Thread.interrupted()).isTrue();
                                outcome.complete(end);
                            });
            long written = token.get(30, TimeUnit.SECONDS);
            caller.interrupt();
            assertThat(outcome.get(30, TimeUnit.SECONDS))
                    .isInstanceOfSatisfying(
                            EngineOutcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.CANCELLED));
            assertThat(fenced).isCompletedWithValue(written);
        }
    }

    private static EngineRequest write(ScriptedPeer peer, RegisteredMemory near) {
        return EngineRequest.write(
                peer.name(), Ranges.of(near.address(), 0x1000, 8), Deadline.in(SOON));
    }
}
