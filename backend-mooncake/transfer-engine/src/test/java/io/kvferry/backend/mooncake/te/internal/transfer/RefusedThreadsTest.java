// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.memory.GateSets;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/// Transfers of any size, some of them cancelled, while threads are refused at random: each ends,
/// what it says is moved is moved, and nothing is written under a grant that has ended.
class RefusedThreadsTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final int ROUNDS = 12;
    private static final int PIECES = 4;

    /// More than two shares over each way, so that large transfers ask for helpers.
    private static final int PIECE_BYTES = 12 << 20;

    @ParameterizedTest
    @CsvSource({"true, 1", "true, 2", "true, 3", "false, 4", "false, 5", "false, 6"})
    void refusedThreadsLeaveNoTransferWithoutAnEnd(boolean sharedMemory, long seed)
            throws Exception {
        var settings = Map.of("shared-memory", String.valueOf(sharedMemory));
        var config = EngineConfig.from(settings);
        var random = new Random(seed);
        try (var arena = Arena.ofShared();
                var there = JavaTransferEngine.start(config);
                var pool = Executors.newCachedThreadPool(Thread.ofPlatform().daemon().factory());
                var watchdog = new Watchdog("test")) {
            var near = arena.allocate((long) PIECES * PIECE_BYTES, 4096);
            var region = new Region(near, Region.NOT_SHARED, Access.OPEN);
            var far = there.allocate(near.byteSize(), Access.OPEN, arena);
            var context = context(config, region, watchdog, pool, random);
            var queues =
                    new SubmitQueues(
                            context.helpers(), config.lanesPerPeer(), config.queuePerPeer());
            watchdog.repeat(queues::endOverdue);
            for (int round = 0; round < ROUNDS; round++) {
                var pieces = new ArrayList<Piece>();
                for (int i = 0; i < PIECES; i++) {
                    pieces.add(new Piece(near, far.memory(), i, random));
                }
                move(there, context, queues, pieces, random);
            }
            queues.close();
            context.peers().close();
            region.gate.close();
            assertThat(region.gate.awaitIdle(Deadline.in(LONG))).as("left by all").isTrue();
        }
    }

    private static TransferContext context(
            EngineConfig config,
            Region region,
            Watchdog watchdog,
            ExecutorService pool,
            Random random) {
        var client = new HandshakeClient(LONG, LONG, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        var regions = new RegionTable();
        regions.add(region);
        return new TransferContext(
                config,
                regions,
                new Holders(),
                new GateSets(),
                new PeerTable(directory, config, watchdog),
                new Notifier(directory, client, 1, 1024),
                work -> {
                    if (random.nextInt(3) == 0) {
                        throw new OutOfMemoryError("no native thread (by the test)");
                    }
                    pool.execute(work);
                },
                "here",
                "",
                new GrantTable(),
                () -> false);
    }

    /// A part of both memories that one transfer has for itself.
    private static final class Piece {
        private final MemorySegment near;
        private final MemorySegment far;
        private final boolean write;
        private final byte value;

        Piece(MemorySegment near, MemorySegment far, int index, Random random) {
            long bytes = 1 + random.nextInt(random.nextBoolean() ? PIECE_BYTES : 64 << 10);
            this.near = near.asSlice((long) index * PIECE_BYTES, bytes);
            this.far = far.asSlice((long) index * PIECE_BYTES, bytes);
            this.write = random.nextBoolean();
            this.value = (byte) (1 + random.nextInt(100));
            this.near.fill(write ? value : 0);
            this.far.fill(write ? 0 : value);
        }

        EngineRequest request(JavaTransferEngine there, WriteGrant grant) {
            var name = there.info().segmentName();
            var ranges = Ranges.of(near.address(), far.address(), near.byteSize());
            return write
                    ? EngineRequest.write(name, ranges, Deadline.in(LONG))
                            .withCapability(grant.token())
                    : EngineRequest.read(name, ranges, Deadline.in(LONG));
        }
    }

    private static void move(
            JavaTransferEngine there,
            TransferContext context,
            SubmitQueues queues,
            List<Piece> pieces,
            Random random)
            throws Exception {
        var grants = new ArrayList<WriteGrant>();
        var transfers = new ArrayList<EngineTransfer>();
        for (var piece : pieces) {
            var grant = there.grant(piece.far.address(), piece.far.byteSize());
            var task = new TransferTask(piece.request(there, grant), context);
            grants.add(grant);
            transfers.add(task);
            queues.submit(there.info().segmentName(), task);
            if (random.nextInt(4) == 0) {
                transfers.get(random.nextInt(transfers.size())).cancel();
            }
        }
        for (int i = 0; i < pieces.size(); i++) {
            var piece = pieces.get(i);
            var outcome =
                    transfers.get(i).outcome().toCompletableFuture().get(90, TimeUnit.SECONDS);
            transfers.get(i).quiesced().toCompletableFuture().get(90, TimeUnit.SECONDS);
            if (outcome instanceof EngineOutcome.Completed) {
                assertThat(isAll(piece.write ? piece.far : piece.near, piece.value))
                        .as("%s of piece %d", outcome, i)
                        .isTrue();
            }
            grants.get(i).close();
            piece.far.fill((byte) 0);
        }
        for (var piece : pieces) {
            assertThat(isAll(piece.far, (byte) 0)).as("after its grant").isTrue();
        }
    }

    private static boolean isAll(MemorySegment memory, byte value) {
        long bytes = memory.byteSize();
        return memory.get(ValueLayout.JAVA_BYTE, 0) == value
                && MemorySegment.mismatch(memory, 0, bytes - 1, memory, 1, bytes) == -1;
    }
}
