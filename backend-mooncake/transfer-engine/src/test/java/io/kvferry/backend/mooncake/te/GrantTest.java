// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.PlainClient;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// Capabilities and incarnations: late writes into reused memory are refused.
@SuppressWarnings("NullAway.Init")
class GrantTest {
    private JavaTransferEngine here;
    private JavaTransferEngine there;
    private RegisteredMemory near;
    private RegisteredMemory far;

    private final Arena arena = Arena.ofShared();

    /// How the two engines reach each other, by the name it has in an outcome.
    enum Way {
        SHM,
        CMA,
        TCP;

        String path() {
            return name().toLowerCase(Locale.ROOT);
        }

        Map<String, String> settings() {
            return Map.of("shared-memory", String.valueOf(this != TCP), "drain-timeout-ms", "300");
        }
    }

    private void start(Way way) {
        here = JavaTransferEngine.start(EngineConfig.from(way.settings()));
        there = JavaTransferEngine.start(EngineConfig.from(way.settings()));
        near = here.allocate(1 << 20);
        far = memory(way, 1 << 20);
    }

    private RegisteredMemory memory(Way way, long bytes) {
        if (way != Way.CMA) {
            return there.allocate(bytes);
        }
        CrossMemorySupport.assumeLinked();
        return there.register(arena.allocate(bytes, 4096));
    }

    @AfterEach
    void close() {
        here.close();
        there.close();
        arena.close();
    }

    private EngineRequest write(long offset, long bytes) {
        return EngineRequest.write(
                there.info().segmentName(),
                Ranges.of(near.address(), far.address() + offset, bytes),
                Deadline.in(Duration.ofSeconds(60)));
    }

    /// Until the server stands in the middle of a write of sevens to the beginning of `far`.
    private void awaitFirstByte() {
        var soon = Deadline.in(Duration.ofSeconds(30));
        while (far.memory().get(ValueLayout.JAVA_BYTE, 0) != 7) {
            assertThat(soon.passed()).as("the first byte did not arrive").isFalse();
            Thread.yield();
        }
    }

    private static ErrorCode codeOf(EngineOutcome outcome) {
        return switch (outcome) {
            case Completed done -> throw new AssertionError("completed: " + done);
            case Failed failed -> failed.failure().code();
        };
    }

    @ParameterizedTest
    @EnumSource
    void writesPassWhileTheGrantIsOpenAndOnlyInsideIt(Way way) {
        start(way);
        near.memory().fill((byte) 7);
        long token;
        try (WriteGrant grant = there.grant(far.address() + 4096, 8192)) {
            token = grant.token();
            assertThat(here.transfer(write(4096, 8192).withCapability(token)))
                    .isEqualTo(new Completed(8192, Guarantee.APPLIED, way.path()));
            assertThat(codeOf(here.transfer(write(4095, 16).withCapability(token))))
                    .isEqualTo(ErrorCode.LEASE_EXPIRED);
            assertThat(codeOf(here.transfer(write(12_280, 16).withCapability(token))))
                    .isEqualTo(ErrorCode.LEASE_EXPIRED);
            assertThat(codeOf(here.transfer(write(4096, 16).withCapability(token + 1))))
                    .isEqualTo(ErrorCode.LEASE_EXPIRED);
        }
        far.memory().fill((byte) 0);
        assertThat(codeOf(here.transfer(write(4096, 16).withCapability(token))))
                .isEqualTo(ErrorCode.LEASE_EXPIRED);
        assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 4096)).isZero();
        assertThat(here.transfer(write(4096, 16))).isInstanceOf(Completed.class);
    }

    /// A peer that gives itself out for another one does not know its key.
    @ParameterizedTest
    @EnumSource
    void keyedMemoryTakesItsKeyWhicheverWayThePeerIsReached(Way way) {
        start(way);
        near.memory().fill((byte) 7);
        far.close();
        var memory = arena.allocate(1 << 20, 4096);
        far =
                way == Way.CMA
                        ? there.register(memory, Access.KEYED)
                        : there.allocate(1 << 20, Access.KEYED, arena);
        for (long key : new long[] {0, here.memoryKey()}) {
            assertThat(codeOf(here.transfer(keyed(write(0, 4096), key))))
                    .isEqualTo(key == 0 ? ErrorCode.PEER_REFUSED : ErrorCode.LEASE_EXPIRED);
            assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 0)).isZero();
        }
        assertThat(here.transfer(keyed(write(0, 4096), there.memoryKey())))
                .isEqualTo(new Completed(4096, Guarantee.APPLIED, way.path()));
        assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 4095)).isEqualTo((byte) 7);
    }

    private static EngineRequest keyed(EngineRequest request, long key) {
        return new EngineRequest(
                request.operation(),
                request.segmentName(),
                request.ranges(),
                request.deadline(),
                "",
                0,
                key,
                request.notification());
    }

    /// Any process of this user can truncate the file of the control page; touching the page then
    /// throws an Error.
    @ParameterizedTest
    @EnumSource(value = WriteGrant.Writers.class)
    void whatEndsInAnErrorOpensNothing(WriteGrant.Writers writers, @TempDir Path folder)
            throws Exception {
        here = JavaTransferEngine.start(EngineConfig.from(Way.TCP.settings()));
        there =
                JavaTransferEngine.start(
                        EngineConfig.from(Map.of("shared-memory-dir", folder.toString())));
        far = there.allocate(1 << 20, Access.GRANTED, arena);
        var control = folder.resolve("kvferry-" + there.info().incarnation() + ".ctl");
        byte[] page = Files.readAllBytes(control);
        var extents = Extents.of(far.address(), far.bytes());
        var more = arena.allocate(1 << 20, 4096);
        try {
            try (var file = FileChannel.open(control, StandardOpenOption.WRITE)) {
                file.truncate(0);
            }
            assertThatThrownBy(() -> there.grant(extents, writers))
                    .isInstanceOf(InternalError.class);
            assertThatThrownBy(() -> there.register(more)).isInstanceOf(InternalError.class);
        } finally {
            Files.write(control, page, StandardOpenOption.WRITE);
        }
        var plain = new PlainClient(there.info().segmentName(), 2);
        for (long address : new long[] {far.address(), more.address()}) {
            var _ = plain.write(address, new byte[] {1, 2, 3});
        }
        assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 0)).isZero();
        assertThat(more.get(ValueLayout.JAVA_BYTE, 0)).isZero();
        there.register(more).close();
        there.grant(extents, writers).close();
    }

    @Test
    void closingAGrantCutsOffAWriterInTheMiddle() throws Exception {
        start(Way.TCP);
        WriteGrant grant = there.grant(far.address(), far.bytes());
        try (var writer = new RawSocket(DataPortTest.dataPort(there))) {
            writer.send(RawSocket.batchWrite(there, grant.token(), far.address(), 1000));
            writer.send(new byte[] {7});
            awaitFirstByte();
            long began = System.nanoTime();
            grant.close();
            assertThat(Duration.ofNanos(System.nanoTime() - began))
                    .isLessThan(Duration.ofSeconds(60));
            assertThat(writer.drain()).isEmpty();
        }
    }

    /// Two ends of a load, say a revocation and a failure, close the same grant; either caller
    /// takes its return for leave to reuse the memory.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void everyCloserWaitsForTheWriterInTheMiddle(boolean ofTheGrant) throws Exception {
        var settings = Map.of("shared-memory", "false", "drain-timeout-ms", "60000");
        here = JavaTransferEngine.start(EngineConfig.from(settings));
        there = JavaTransferEngine.start(EngineConfig.from(settings));
        near = here.allocate(1 << 20);
        far = there.allocate(1 << 20);
        WriteGrant grant = there.grant(far.address(), far.bytes());
        Runnable close = ofTheGrant ? grant::close : far::close;
        try (var writer = new RawSocket(DataPortTest.dataPort(there))) {
            writer.send(RawSocket.batchWrite(there, grant.token(), far.address(), 1000));
            writer.send(new byte[] {7});
            awaitFirstByte();
            // Each on a thread of its own: the common pool may have but one.
            Executor threads = work -> Thread.ofPlatform().daemon().start(work);
            var first = CompletableFuture.runAsync(close, threads);
            // Refused from the moment on that the first closer waits for the writer.
            while (here.transfer(write(2000, 8).withCapability(grant.token()))
                    instanceof Completed) {
                Thread.onSpinWait();
            }
            var second = CompletableFuture.runAsync(close, threads);
            assertThatThrownBy(() -> second.get(300, TimeUnit.MILLISECONDS))
                    .as("closed for the second caller while the writer is inside")
                    .isInstanceOf(TimeoutException.class);
            assertThat(first).isNotDone();
            writer.send(new byte[999]);
            assertThat(writer.receive(16)).startsWith(0, 0, 0, 0);
            assertThat(CompletableFuture.allOf(first, second)).succeedsWithin(60, TimeUnit.SECONDS);
        }
    }

    @Test
    void unregisteringCutsOffWhoeverStallsInTheMemory() throws Exception {
        start(Way.TCP);
        try (var reader = new RawSocket(DataPortTest.dataPort(there))) {
            reader.send(RawSocket.header(1000, far.address(), 0x81)).send(new byte[10]);
            assertThat(here.transfer(write(2000, 8))).isInstanceOf(Completed.class);
            far.close();
            // Cut off in the middle, or refused when the server had not begun: never told that all
            // is well.
            assertThat(reader.drain())
                    .satisfiesAnyOf(
                            end -> assertThat(end).isEmpty(),
                            end -> assertThat(end).startsWith(1, 0, 0, 0));
        }
        assertThat(codeOf(here.transfer(write(0, 8)))).isEqualTo(ErrorCode.PEER_REFUSED);
    }

    /// READs that follow each other leave together. The regions of those that have left are free.
    @Test
    void aChainOfReadsHoldsNoRegionThatItHasLeft() throws Exception {
        var settings = Map.of("shared-memory", "false", "drain-timeout-ms", "120000");
        here = JavaTransferEngine.start(EngineConfig.from(settings));
        there = JavaTransferEngine.start(EngineConfig.from(settings));
        int bytes = 4 << 20;
        int reads = 64;
        var first = there.allocate(1 << 20);
        far = there.allocate(bytes);
        far.memory().fill((byte) 3);
        try (var reader = new RawSocket(DataPortTest.dataPort(there))) {
            var chain = ByteBuffer.allocate(24 * (reads + 1));
            chain.put(RawSocket.header(1 << 20, first.address(), DataFrames.READ));
            for (int i = 0; i < reads; i++) {
                chain.put(RawSocket.header(bytes, far.address(), DataFrames.READ));
            }
            reader.send(chain.array());
            reader.receive(1 << 20);
            for (int i = 0; i < 20; i++) {
                assertThat(reader.receive(bytes)).hasSize(bytes);
            }
            // The reader rests, and the server stands in the middle of the chain.
            assertThat(CompletableFuture.runAsync(first::close))
                    .succeedsWithin(60, TimeUnit.SECONDS);
            for (int i = 20; i < reads; i++) {
                assertThat(reader.receive(bytes)).hasSize(bytes).endsWith((byte) 3);
            }
        }
    }

    /// Who takes memory away waits for what was asked before, not for what is asked after.
    @Test
    void aChainOfReadsEndsWhenItsRegionIsTakenAway() throws Exception {
        var settings =
                Map.of(
                        "shared-memory",
                        "false",
                        "drain-timeout-ms",
                        "113000",
                        "stall-timeout-ms",
                        "113000");
        here = JavaTransferEngine.start(EngineConfig.from(settings));
        there = JavaTransferEngine.start(EngineConfig.from(settings));
        near = here.allocate(4096);
        int bytes = 4 << 20;
        far = there.allocate(bytes);
        try (var reader = new RawSocket(DataPortTest.dataPort(there))) {
            var chain = ByteBuffer.allocate(24 * 1300);
            for (int i = 0; i < 1300; i++) {
                chain.put(RawSocket.header(bytes, far.address(), DataFrames.READ));
            }
            reader.send(chain.array()); // one segment: all of it is read before the refusal
            reader.receive(bytes);
            var closing = CompletableFuture.runAsync(far::close);
            // Closed for whoever comes now, and waiting for the chain: only then is it read on.
            while (here.transfer(write(0, 8)) instanceof Completed) {
                Thread.onSpinWait();
            }
            long read = bytes;
            for (int got = -1; got != 0; read += got) {
                got = reader.receive(bytes).length; // short at the end
            }
            assertThat(closing).succeedsWithin(60, TimeUnit.SECONDS);
            assertThat(read).as("bytes that were served").isLessThan(1300L * bytes);
        }
    }

    @ParameterizedTest
    @EnumSource
    void unregisteredMemoryIsRefusedAndNewMemoryFound(Way way) {
        start(way);
        assertThat(here.transfer(write(0, 4096))).isInstanceOf(Completed.class);
        far.close();
        assertThat(codeOf(here.transfer(write(0, 4096)))).isEqualTo(ErrorCode.PEER_REFUSED);
        far = memory(way, 1 << 16);
        assertThat(here.transfer(write(0, 4096)))
                .isEqualTo(new Completed(4096, Guarantee.APPLIED, way.path()));
    }

    @ParameterizedTest
    @EnumSource
    void transfersForAnEarlierIncarnationAreRefused(Way way) {
        start(way);
        String first = there.info().incarnation();
        assertThat(here.transfer(write(0, 64).withIncarnation(first)))
                .isInstanceOf(Completed.class);
        assertThat(codeOf(here.transfer(write(0, 64).withIncarnation("0".repeat(32)))))
                .isEqualTo(ErrorCode.STALE_INCARNATION);
        int port = there.info().rpcPort();
        there.close();
        assertThat(codeOf(here.transfer(write(0, 64).withIncarnation(first))))
                .isEqualTo(ErrorCode.PEER_LOST);

        // The same port again, with another life behind it.
        var settings =
                EngineConfig.from(
                        Map.of(
                                "min-port",
                                String.valueOf(port),
                                "max-port",
                                String.valueOf(port + 7),
                                "shared-memory",
                                way.settings().get("shared-memory")));
        there = JavaTransferEngine.start(settings);
        for (int tries = 0; there.info().rpcPort() != port && tries < 200; tries++) {
            there.close();
            there = JavaTransferEngine.start(settings);
        }
        assumeTrue(there.info().rpcPort() == port, "somebody else took port " + port);
        far = memory(way, 1 << 20);
        assertThat(codeOf(here.transfer(write(0, 64).withIncarnation(first))))
                .isEqualTo(ErrorCode.STALE_INCARNATION);
        assertThat(here.transfer(write(0, 64)))
                .isEqualTo(new Completed(64, Guarantee.APPLIED, way.path()));
    }

    /// Such a request may wait for long before it is made.
    @ParameterizedTest
    @EnumSource
    void aRequestForAnEarlierIncarnationEndsNoTransferToThePeer(Way way) throws Exception {
        here = JavaTransferEngine.start(EngineConfig.from(way.settings()));
        there = JavaTransferEngine.start(EngineConfig.from(way.settings()));
        long bytes = 256 << 20;
        near = here.allocate(bytes);
        far = memory(way, bytes);
        for (int round = 0; round < 3; round++) {
            var running = here.submit(write(0, bytes)).outcome().toCompletableFuture();
            do {
                assertThat(codeOf(here.transfer(write(0, 64).withIncarnation("0".repeat(32)))))
                        .isEqualTo(ErrorCode.STALE_INCARNATION);
            } while (!running.isDone());
            assertThat(running.get())
                    .isEqualTo(new Completed(bytes, Guarantee.APPLIED, way.path()));
        }
    }

    /// Holes, no READ, and memory that nobody touches without a grant.
    @ParameterizedTest
    @EnumSource
    void aGrantCoversItsRangesAndPermitsNoRead(Way way) {
        start(way);
        var guarded =
                way == Way.SHM
                        ? there.allocate(1 << 16, Access.GRANTED, arena)
                        : there.register(arena.allocate(1 << 16, 4096), Access.GRANTED);
        if (way == Way.CMA) {
            CrossMemorySupport.assumeLinked();
        }
        far = guarded;
        var extents =
                new Extents.Builder()
                        .add(far.address() + 4096, 4096)
                        .add(far.address() + 16_384, 4096)
                        .build();
        assertThat(codeOf(here.transfer(write(4096, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
        try (WriteGrant grant = there.grant(extents, WriteGrant.Writers.TOKEN)) {
            long token = grant.token();
            assertThat(here.transfer(write(4096, 4096).withCapability(token)))
                    .isEqualTo(new Completed(4096, Guarantee.APPLIED, way.path()));
            assertThat(here.transfer(write(16_384, 4096).withCapability(token)))
                    .isInstanceOf(Completed.class);
            assertThat(codeOf(here.transfer(write(8192, 64).withCapability(token))))
                    .isEqualTo(ErrorCode.LEASE_EXPIRED);
            assertThat(codeOf(here.transfer(write(4096, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
            var read =
                    EngineRequest.read(
                            there.info().segmentName(),
                            Ranges.of(near.address(), far.address() + 4096, 64),
                            Deadline.in(Duration.ofSeconds(60)));
            assertThat(codeOf(here.transfer(read))).isEqualTo(ErrorCode.PEER_REFUSED);
            assertThat(codeOf(here.transfer(read.withCapability(token))))
                    .isEqualTo(ErrorCode.LEASE_EXPIRED);
        }
        try (WriteGrant _ = there.grant(extents, WriteGrant.Writers.ANY)) {
            assertThat(here.transfer(write(4096, 4096))).isInstanceOf(Completed.class);
            assertThat(codeOf(here.transfer(write(8192, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
        }
        assertThat(codeOf(here.transfer(write(4096, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
    }

    @Test
    void onTheSameHostToo() {
        start(Way.CMA);
        far = there.register(arena.allocate(1 << 16, 4096), Access.GRANTED);
        assertThat(codeOf(here.transfer(write(0, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
        try (WriteGrant grant = there.grant(far.address(), 4096)) {
            assertThat(here.transfer(write(0, 4096).withCapability(grant.token())))
                    .isEqualTo(new Completed(4096, Guarantee.APPLIED, Way.CMA.path()));
            assertThat(codeOf(here.transfer(write(0, 64)))).isEqualTo(ErrorCode.PEER_REFUSED);
        }
    }

    @Test
    void grantsNeedARegisteredRange() {
        start(Way.TCP);
        assertThatThrownBy(() -> there.grant(far.address(), far.bytes() + 1))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
    }
}
