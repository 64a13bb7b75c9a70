// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.Bytes;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Optional;

/// A copy through a mapping can be ended between two calls by any thread, and touches nothing else.
@SuppressWarnings("NullAway.Init")
class MappedCopierTest {
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final int SLOT = 3;
    private static final long NUMBER = 7;
    private static final int GRANT = 5;
    private static final long TOKEN = 77;
    private static final long CALL = MappedCopier.CALL_BYTES;
    private static final long BYTES = 3 * CALL;

    /// Where the peer has the memory.
    private static final long THERE = 1L << 40;

    @TempDir Path folder;
    private final Arena arena = Arena.ofShared();
    private MemorySegment near;
    private MemorySegment far;
    private ControlPage control;
    private MappedCopier copier;
    private int announced;
    private int pieces;
    private int failedAt = -1;

    @BeforeEach
    void list() throws IOException {
        near = arena.allocate(BYTES, 4096);
        far = arena.allocate(BYTES, 4096);
        Bytes.fill(near, 1);
        var probe = arena.allocateFrom(INCARNATION, StandardCharsets.US_ASCII);
        try (FileChannel file = SharedFolder.create(folder.resolve("page"))) {
            control = ControlPage.create(file, INCARNATION, Optional.empty(), probe, arena);
        }
        control.openRegion(SLOT, NUMBER, THERE, BYTES, Access.GRANTED);
        open(Extents.of(THERE, BYTES));
        var locals = new RegionTable();
        locals.add(new Region(near, Region.NOT_SHARED, Access.OPEN));
        copier = new MappedCopier(control, locals);
    }

    @AfterEach
    void free() {
        arena.close();
    }

    private void open(Extents extents) {
        control.openGrant(GRANT, TOKEN, extents, 0);
    }

    private Slice whole() {
        // A border between ranges inside the first call, and a range of two calls.
        long border = CALL / 2 + 100;
        var ranges =
                Ranges.of(near.address(), THERE, border)
                        .add(near.address() + border, THERE + border, CALL - border)
                        .add(near.address() + CALL, THERE + CALL, BYTES - CALL);
        return Slice.cut(ranges, 1)[0];
    }

    /// Does something before the call of that number, counted from 1.
    private SameHostCopier.Job job(int call, Runnable before) {
        return new SameHostCopier.Job() {
            @Override
            public boolean write() {
                return true;
            }

            @Override
            public Mapped[] table() {
                pieces++; // each is looked up
                return new Mapped[] {new Mapped(THERE, BYTES, NUMBER, SLOT, Access.GRANTED, far)};
            }

            @Override
            public int grant() {
                return GRANT;
            }

            @Override
            public long token() {
                return TOKEN;
            }

            @Override
            public void requireGoingOn() {}

            @Override
            public void announce(int mark) {
                if (++announced == call) {
                    before.run();
                }
            }

            @Override
            public void touched() {}

            @Override
            public void failedAt(int range) {
                failedAt = range;
            }
        };
    }

    private static void giveUp() {
        throw new KvFerryException(ErrorCode.CANCELLED, "given up");
    }

    private void endsBeforeTheSecondCall(Runnable event, ErrorCode code) {
        assertThatThrownBy(() -> copier.carry(job(2, event), 0, whole()))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
        assertThat(Bytes.mismatch(far, 0, CALL, 1)).isEqualTo(-1);
        assertThat(far.asSlice(CALL).mismatch(arena.allocate(BYTES - CALL)))
                .as("what follows is untouched")
                .isEqualTo(-1);
    }

    @Test
    void announcesEachCallAnew() {
        assertThat(copier.carry(job(0, () -> {}), 0, whole())).isTrue();
        assertThat(announced).isEqualTo(3);
        assertThat(Bytes.mismatch(far, 0, BYTES, 1)).isEqualTo(-1);
    }

    @Test
    void aRangeThatFitsIntoACallIsCopiedInOnePiece() {
        long length = CALL * 3 / 8;
        var ranges = new Ranges(8);
        for (long at = 0; at < BYTES; at += length) {
            ranges.add(near.address() + at, THERE + at, length);
        }
        assertThat(copier.carry(job(0, () -> {}), 0, Slice.cut(ranges, 1)[0])).isTrue();
        assertThat(pieces).isEqualTo(8);
        assertThat(announced).as("calls of two whole ranges").isEqualTo(4);
        assertThat(Bytes.mismatch(far, 0, BYTES, 1)).isEqualTo(-1);
    }

    @Test
    void aLongerRangeIsCopiedInPiecesOfAboutEqualLength() {
        long length = 2 * CALL + 1;
        var ranges = Ranges.of(near.address(), THERE, length);
        assertThatThrownBy(() ->
                        copier.carry(job(2, MappedCopierTest::giveUp), 0, Slice.cut(ranges, 1)[0]))
                .isInstanceOf(KvFerryException.class);
        long copied = length / 3 / 4096 * 4096 + 4096; // a third, to a whole page
        assertThat(Bytes.mismatch(far, 0, copied, 1)).isEqualTo(-1);
        assertThat(far.asSlice(copied).mismatch(arena.allocate(BYTES - copied))).isEqualTo(-1);

        announced = 0;
        pieces = 0;
        assertThat(copier.carry(job(0, () -> {}), 0, Slice.cut(ranges, 1)[0])).isTrue();
        assertThat(announced).isEqualTo(3);
        assertThat(pieces).isEqualTo(3);
        assertThat(Bytes.mismatch(far, 0, length, 1)).isEqualTo(-1);
        assertThat(far.asSlice(length).mismatch(arena.allocate(BYTES - length))).isEqualTo(-1);
    }

    @Test
    void cancellingEndsItBetweenCalls() {
        endsBeforeTheSecondCall(MappedCopierTest::giveUp, ErrorCode.CANCELLED);
    }

    @Test
    void aCapabilityThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.closeGrant(GRANT), ErrorCode.LEASE_EXPIRED);
    }

    @Test
    void aRegionThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.closeRegion(SLOT), ErrorCode.PEER_REFUSED);
    }

    @Test
    void anEngineThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.close(), ErrorCode.PEER_LOST);
    }

    @Test
    void betweenTheExtentsOfAGrantNothingIsWritten() {
        open(
                new Extents.Builder()
                        .add(THERE, 4096)
                        .add(THERE + 8192, 4096)
                        .add(THERE + CALL, 4096)
                        .build());
        var ranges =
                Ranges.of(near.address(), THERE + CALL, 4096)
                        .add(near.address(), THERE + 8192, 4096)
                        .add(near.address(), THERE + 4096, 64);
        assertThatThrownBy(() -> copier.carry(job(0, () -> {}), 0, Slice.cut(ranges, 1)[0]))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.LEASE_EXPIRED));
        assertThat(failedAt).isEqualTo(2);
        assertThat(far.asSlice(4096, 4096).mismatch(arena.allocate(4096))).isEqualTo(-1);
        assertThat(far.asSlice(8192, 4096).mismatch(near.asSlice(0, 4096))).isEqualTo(-1);
    }
}
