// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/// The same transfers over each of the ways that two engines can speak to each other.
@SuppressWarnings("NullAway.Init")
class TransferModesTest {
    enum Mode {
        SHARED_MEMORY(Map.of(), "shm", Guarantee.APPLIED),
        CROSS_MEMORY(Map.of(), "cma", Guarantee.APPLIED),
        EXTENSION(Map.of("shared-memory", "false"), "tcp", Guarantee.APPLIED),
        EXTENSION_CHECKED(
                Map.of("shared-memory", "false", "checksum", "true"), "tcp", Guarantee.APPLIED),
        EXTENSION_SPINNING(
                Map.of("shared-memory", "false", "spin-us", "200"), "tcp", Guarantee.APPLIED),
        VERSION_2(Map.of("extension", "false"), "tcp", Guarantee.APPLIED),
        VERSION_1(Map.of("extension", "false", "protocol-version", "1"), "tcp", Guarantee.SENT);

        final Map<String, String> settings;
        final String path;
        final Guarantee guarantee;

        Mode(Map<String, String> settings, String path, Guarantee guarantee) {
            this.settings = settings;
            this.path = path;
            this.guarantee = guarantee;
        }

        JavaTransferEngine start() {
            return JavaTransferEngine.start(EngineConfig.from(new HashMap<>(settings)));
        }
    }

    /// Around what goes through a staging buffer, and what one call moves.
    private static final int[] LENGTHS = {1, 62, 4095, 32_767, 65_536, 262_144, 300_000};

    private JavaTransferEngine here;
    private JavaTransferEngine there;

    private final Arena arena = Arena.ofShared();

    private void start(Mode mode) {
        here = mode.start();
        there = mode.start();
    }

    @AfterEach
    void close() {
        here.close();
        there.close();
        arena.close();
    }

    private RegisteredMemory memory(JavaTransferEngine engine, Mode mode, long bytes) {
        if (mode != Mode.CROSS_MEMORY) {
            return engine.allocate(bytes);
        }
        CrossMemorySupport.assumeLinked();
        return engine.register(arena.allocate(bytes, 4096));
    }

    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(60));
    }

    private static void completed(EngineOutcome outcome, long bytes) {
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        Completed.class, done -> assertThat(done.bytes()).isEqualTo(bytes));
    }

    @ParameterizedTest
    @EnumSource
    void writesAndReadsBackRangesOfAllSizes(Mode mode) {
        start(mode);
        long size = 9 << 20;
        RegisteredMemory near = memory(here, mode, size);
        RegisteredMemory far = memory(there, mode, size);
        Bytes.fill(near.memory(), 1);
        String peer = there.info().segmentName();

        for (long bytes : new long[] {1, 7, 4096, 32_767, 32_768, 65_537, 1 << 20, size}) {
            far.memory().fill((byte) 0);
            EngineOutcome written =
                    here.transfer(
                            EngineRequest.write(
                                    peer, Ranges.of(near.address(), far.address(), bytes), soon()));
            assertThat(written).isEqualTo(new Completed(bytes, mode.guarantee, mode.path));
            assertThat(Bytes.mismatch(far.memory(), 0, bytes, 1))
                    .as("%d bytes", bytes)
                    .isEqualTo(-1);
            if (bytes < size) {
                assertThat(far.memory().get(ValueLayout.JAVA_BYTE, bytes)).isZero();
            }
        }
        Bytes.fill(far.memory(), 2);
        for (long bytes : new long[] {1, 4096, 65_537, size}) {
            near.memory().fill((byte) 0);
            completed(
                    here.transfer(
                            EngineRequest.read(
                                    peer, Ranges.of(near.address(), far.address(), bytes), soon())),
                    bytes);
            assertThat(Bytes.mismatch(near.memory(), 0, bytes, 2))
                    .as("%d bytes", bytes)
                    .isEqualTo(-1);
        }
    }

    /// Short and long ranges that touch each other or leave gaps, in both directions: every byte of
    /// both memories is where it belongs, also between the ranges.
    @ParameterizedTest
    @EnumSource
    void movesRandomRangesAndNothingElse(Mode mode) {
        start(mode);
        int size = 4 << 20;
        RegisteredMemory near = memory(here, mode, size);
        RegisteredMemory far = memory(there, mode, size);
        String peer = there.info().segmentName();
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int turn = 0; turn < 30; turn++) {
            Bytes.fill(near.memory(), random.nextInt());
            Bytes.fill(far.memory(), random.nextInt());
            boolean write = random.nextBoolean();
            RegisteredMemory source = write ? near : far;
            RegisteredMemory target = write ? far : near;
            byte[] sent = source.memory().toArray(ValueLayout.JAVA_BYTE);
            byte[] expected = target.memory().toArray(ValueLayout.JAVA_BYTE);
            var ranges = new Ranges(64);
            int from = 0;
            int to = 0;
            while (true) {
                int bytes = LENGTHS[random.nextInt(LENGTHS.length)] + random.nextInt(3);
                from += random.nextBoolean() ? 0 : random.nextInt(5000);
                to += random.nextBoolean() ? 0 : random.nextInt(5000);
                if (Math.max(from, to) + bytes > size) {
                    break;
                }
                System.arraycopy(sent, from, expected, to, bytes);
                long local = near.address() + (write ? from : to);
                long remote = far.address() + (write ? to : from);
                ranges.add(local, remote, bytes);
                from += bytes;
                to += bytes;
            }
            var outcome =
                    here.transfer(
                            write
                                    ? EngineRequest.write(peer, ranges, soon())
                                    : EngineRequest.read(peer, ranges, soon()));
            assertThat(outcome).as("seed %d, turn %d", seed, turn).isInstanceOf(Completed.class);
            assertThat(target.memory().toArray(ValueLayout.JAVA_BYTE))
                    .as("target, seed %d, turn %d", seed, turn)
                    .isEqualTo(expected);
            assertThat(source.memory().toArray(ValueLayout.JAVA_BYTE))
                    .as("source, seed %d, turn %d", seed, turn)
                    .isEqualTo(sent);
        }
    }

    @ParameterizedTest
    @EnumSource
    void copiesScatteredBatches(Mode mode) {
        start(mode);
        int blocks = mode == Mode.VERSION_1 ? 300 : 3000;
        int blockBytes = 1000;
        RegisteredMemory near = memory(here, mode, (long) blocks * blockBytes);
        RegisteredMemory far = memory(there, mode, (long) blocks * blockBytes);
        Bytes.fill(near.memory(), 3);
        var random = new Random(42);
        int[] order = random.ints(0, blocks).distinct().limit(blocks).toArray();
        var ranges = new Ranges(16);
        for (int i = 0; i < blocks; i++) {
            ranges.add(
                    near.address() + (long) i * blockBytes,
                    far.address() + (long) order[i] * blockBytes,
                    blockBytes);
            ranges.add(near.address(), far.address(), 0);
        }

        completed(
                here.transfer(EngineRequest.write(there.info().segmentName(), ranges, soon())),
                (long) blocks * blockBytes);
        for (int i = 0; i < blocks; i++) {
            MemorySegment sent = near.memory().asSlice((long) i * blockBytes, blockBytes);
            MemorySegment arrived = far.memory().asSlice((long) order[i] * blockBytes, blockBytes);
            assertThat(sent.mismatch(arrived)).as("block %d", i).isEqualTo(-1);
        }

        near.memory().fill((byte) 0);
        completed(
                here.transfer(EngineRequest.read(there.info().segmentName(), ranges, soon())),
                (long) blocks * blockBytes);
        assertThat(Bytes.mismatch(near.memory(), 0, near.bytes(), 3)).isEqualTo(-1);
    }

    @ParameterizedTest
    @EnumSource
    void copiesBatchesOfShortAndLongRanges(Mode mode) {
        start(mode);
        var random = new Random(7);
        var ranges = new Ranges(200);
        long size = 24 << 20;
        RegisteredMemory near = memory(here, mode, size);
        RegisteredMemory far = memory(there, mode, size);
        Bytes.fill(near.memory(), 4);
        long at = 0;
        int[] around = {1, 24, 4096, 8192, 32_768, 65_536, 262_144, 1 << 20};
        while (at + (2 << 20) < size) {
            long bytes = around[random.nextInt(around.length)] + random.nextInt(-1, 90);
            if (bytes > 0) {
                ranges.add(near.address() + at, far.address() + at, bytes);
            }
            at += Math.max(0, bytes);
        }

        completed(
                here.transfer(EngineRequest.write(there.info().segmentName(), ranges, soon())), at);
        assertThat(Bytes.mismatch(far.memory(), 0, at, 4)).isEqualTo(-1);
        near.memory().fill((byte) 0);
        completed(
                here.transfer(EngineRequest.read(there.info().segmentName(), ranges, soon())), at);
        assertThat(Bytes.mismatch(near.memory(), 0, at, 4)).isEqualTo(-1);
    }

    @ParameterizedTest
    @EnumSource
    void refusesRemoteAddressesOutsideOneRegion(Mode mode) {
        start(mode);
        RegisteredMemory near = memory(here, mode, 1 << 16);
        RegisteredMemory far = memory(there, mode, 1 << 16);
        String peer = there.info().segmentName();

        for (Operation operation : Operation.values()) {
            for (long address :
                    new long[] {0x1000, far.address() - 1, far.address() + far.bytes() - 15, -16}) {
                var ranges =
                        Ranges.of(near.address(), far.address(), 16)
                                .add(near.address(), address, 16);
                EngineOutcome outcome =
                        here.transfer(
                                new EngineRequest(
                                        operation,
                                        peer,
                                        ranges,
                                        soon(),
                                        "",
                                        0,
                                        0,
                                        Optional.empty()));
                assertThat(outcome)
                        .isInstanceOfSatisfying(
                                Failed.class,
                                failed -> {
                                    // Without receipts a refusal cannot be told from a lost
                                    // connection.
                                    assertThat(failed.failure().code())
                                            .isEqualTo(
                                                    mode == Mode.VERSION_1
                                                            ? ErrorCode.PEER_LOST
                                                            : ErrorCode.PEER_REFUSED);
                                    assertThat(failed.range())
                                            .isEqualTo(mode == Mode.VERSION_1 ? -1 : 1);
                                });
            }
        }
        completed(
                here.transfer(
                        EngineRequest.write(
                                peer, Ranges.of(near.address(), far.address(), 16), soon())),
                16);
    }

    @ParameterizedTest
    @EnumSource
    void runsManySubmittedTransfersAtOnce(Mode mode) throws Exception {
        start(mode);
        int transfers = 64;
        long bytes = 64 << 10;
        RegisteredMemory near = memory(here, mode, transfers * bytes);
        RegisteredMemory far = memory(there, mode, transfers * bytes);
        Bytes.fill(near.memory(), 5);
        var running = new EngineTransfer[transfers];
        for (int i = 0; i < transfers; i++) {
            var ranges = Ranges.of(near.address() + i * bytes, far.address() + i * bytes, bytes);
            running[i] =
                    here.submit(EngineRequest.write(there.info().segmentName(), ranges, soon()));
        }
        for (EngineTransfer transfer : running) {
            completed(transfer.outcome().toCompletableFuture().get(60, TimeUnit.SECONDS), bytes);
            transfer.quiesced().toCompletableFuture().get(60, TimeUnit.SECONDS);
        }
        assertThat(Bytes.mismatch(far.memory(), 0, far.bytes(), 5)).isEqualTo(-1);
    }
}
