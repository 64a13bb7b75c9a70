// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// Many peers, many regions, big transfers. The long forms carry the tag "soak".
@SuppressWarnings("NullAway.Init")
class ScaleTest {
    private static final Map<String, String> NO_SHARED_MEMORY = Map.of("shared-memory", "false");

    private static final Duration LIMIT = Duration.ofSeconds(60);

    @TempDir Path folder;

    @Test
    void writesToAllOfEightPeersAtOnce() throws Exception {
        writeToPeers(8);
    }

    @Test
    @Tag("soak")
    void writesToAllOf64PeersAtOnce() throws Exception {
        writeToPeers(64);
    }

    private static void writeToPeers(int count) throws Exception {
        List<JavaTransferEngine> peers = new ArrayList<>();
        try (var here = JavaTransferEngine.start(EngineConfig.from(NO_SHARED_MEMORY))) {
            RegisteredMemory near = here.allocate(1 << 20);
            Bytes.fill(near.memory(), 1);
            List<RegisteredMemory> targets = new ArrayList<>();
            List<EngineTransfer> transfers = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                var peer = JavaTransferEngine.start(EngineConfig.from(NO_SHARED_MEMORY));
                peers.add(peer);
                targets.add(peer.allocate(1 << 20));
            }
            for (int round = 0; round < 4; round++) {
                for (int i = 0; i < count; i++) {
                    long quarter = round * (1L << 18);
                    transfers.add(
                            here.submit(
                                    EngineRequest.write(
                                            peers.get(i).info().segmentName(),
                                            Ranges.of(
                                                    near.address() + quarter,
                                                    targets.get(i).address() + quarter,
                                                    1 << 18),
                                            Deadline.in(LIMIT))));
                }
            }
            for (EngineTransfer transfer : transfers) {
                assertThat(transfer.outcome().toCompletableFuture().get(60, TimeUnit.SECONDS))
                        .isInstanceOf(Completed.class);
            }
            for (RegisteredMemory target : targets) {
                assertThat(target.memory().mismatch(near.memory())).isEqualTo(-1);
            }
        } finally {
            peers.forEach(JavaTransferEngine::close);
        }
    }

    @Test
    void serves10000Regions() {
        try (var arena = Arena.ofShared();
                var here =
                        JavaTransferEngine.start(EngineConfig.from(Map.of("extension", "false")));
                var there =
                        JavaTransferEngine.start(EngineConfig.from(Map.of("extension", "false")))) {
            int count = 10_000;
            // A gap after each, so that adjacent ones cannot pass for one.
            MemorySegment slab = arena.allocate(count * 128L, 64);
            List<RegisteredMemory> regions = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                regions.add(there.register(slab.asSlice(i * 128L, 64)));
            }
            RegisteredMemory near = here.allocate(count * 64L);
            Bytes.fill(near.memory(), 9);
            var ranges = new Ranges(count);
            for (int i = 0; i < count; i++) {
                ranges.add(near.address() + i * 64L, regions.get(i).address(), 64);
            }
            RemoteSegment peer = here.open(there.info().segmentName(), Deadline.in(LIMIT));
            assertThat(peer.buffers()).hasSizeGreaterThan(5_000);
            assertThat(
                            here.transfer(
                                    EngineRequest.write(
                                            there.info().segmentName(),
                                            ranges,
                                            Deadline.in(LIMIT))))
                    .isInstanceOf(Completed.class);
            for (int i = 0; i < count; i++) {
                assertThat(slab.asSlice(i * 128L, 64).mismatch(near.memory().asSlice(i * 64L, 64)))
                        .isEqualTo(-1);
            }
            regions.forEach(RegisteredMemory::close);
        }
    }

    @Test
    void refusesMemoryItCannotServe() {
        try (var arena = Arena.ofShared();
                var engine = JavaTransferEngine.start(EngineConfig.defaults())) {
            MemorySegment memory = arena.allocate(4096);
            RegisteredMemory first = engine.register(memory.asSlice(0, 2048));
            for (MemorySegment bad :
                    List.of(
                            memory,
                            memory.asSlice(2047, 10),
                            memory.asSlice(100, 10),
                            memory.asSlice(0, 0),
                            MemorySegment.ofArray(new byte[10]),
                            memory.asReadOnly())) {
                assertThatThrownBy(() -> engine.register(bad))
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
            }
            RegisteredMemory second = engine.register(memory.asSlice(2048, 2048));
            first.close();
            first.close();
            engine.register(memory.asSlice(0, 2048)).close();
            second.close();
        }
    }

    @Test
    void movesOneByteToOneRegionOfOnePeer() {
        moves(1, NO_SHARED_MEMORY, "tcp");
    }

    @Test
    @Tag("soak")
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void moves4GiBInOneRangeOverTcp() {
        moves((4L << 30) + 17, NO_SHARED_MEMORY, "tcp");
    }

    @Test
    @Tag("soak")
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void moves4GiBInOneRangeOverTcpAsRealMooncakeDoes() {
        moves((4L << 30) + 17, Map.of("extension", "false"), "tcp");
    }

    @Test
    @Tag("soak")
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void moves4GiBInOneRangeThroughSharedMemory() {
        moves((4L << 30) + 17, Map.of(), "shm");
    }

    /// There and back. Registered memory is mapped from files, which the system may write out, so
    /// that the machine needs not hold all of it at once; shared memory has to be.
    private void moves(long bytes, Map<String, String> settings, String path) {
        try (var here = JavaTransferEngine.start(EngineConfig.from(settings));
                var there = JavaTransferEngine.start(EngineConfig.from(settings));
                var arena = Arena.ofShared()) {
            RegisteredMemory near = here.register(mapped("near", bytes, arena));
            RegisteredMemory far =
                    path.equals("shm")
                            ? there.allocate(bytes)
                            : there.register(mapped("far", bytes, arena));
            mark(near.memory(), 31);
            var ranges = Ranges.of(near.address(), far.address(), bytes);
            String peer = there.info().segmentName();
            Deadline limit = Deadline.in(Duration.ofMinutes(8));
            assertThat(here.transfer(EngineRequest.write(peer, ranges, limit)))
                    .isEqualTo(new Completed(bytes, Guarantee.APPLIED, path));
            assertThat(near.memory().mismatch(far.memory())).isEqualTo(-1);
            mark(far.memory(), 37);
            assertThat(here.transfer(EngineRequest.read(peer, ranges, limit)))
                    .isEqualTo(new Completed(bytes, Guarantee.APPLIED, path));
            assertThat(near.memory().mismatch(far.memory())).isEqualTo(-1);
            near.close();
            far.close();
        }
    }

    private MemorySegment mapped(String name, long bytes, Arena arena) {
        try (var file =
                FileChannel.open(
                        folder.resolve(name),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            return file.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// Makes every page tell where it is.
    private static void mark(MemorySegment memory, int factor) {
        for (long i = 0; i + 8 <= memory.byteSize(); i += 4096) {
            memory.set(ValueLayout.JAVA_LONG_UNALIGNED, i, i * factor + 7);
        }
        memory.set(ValueLayout.JAVA_BYTE, memory.byteSize() - 1, (byte) factor);
    }
}
