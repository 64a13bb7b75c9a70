// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.Bytes;
import io.kvferry.backend.mooncake.te.CrossMemorySupport;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;

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

/// What happens between two calls of a copy, step by step, with this process as its own peer.
@SuppressWarnings("NullAway.Init")
class CmaCopierTest {
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final int SLOT = 3;
    private static final long NUMBER = -7;
    private static final int GRANT = 5;
    private static final long TOKEN = 77;
    private static final long CALL = 4 << 20;
    private static final long BYTES = 3 * CALL;

    @TempDir Path folder;
    private final Arena arena = Arena.ofShared();
    private MemorySegment probe;
    private MemorySegment near;
    private MemorySegment far;
    private ControlPage control;
    private CmaCopier copier;
    private Slice whole;
    private int announced;
    private int failedAt = -1;

    @BeforeEach
    void list() throws IOException {
        CrossMemorySupport.assumeLinked();
        probe = arena.allocateFrom(INCARNATION, StandardCharsets.US_ASCII);
        near = arena.allocate(BYTES, 4096);
        far = arena.allocate(BYTES, 4096);
        Bytes.fill(near, 1);
        control = page(ProcessIdentity.own());
        control.openRegion(SLOT, NUMBER, far.address(), BYTES, Access.OPEN);
        control.openGrant(GRANT, TOKEN, Extents.of(far.address(), BYTES), 0);
        copier = new CmaCopier(control, control.attachOwner(INCARNATION));
        // Two ranges with the border inside a call.
        var ranges =
                Ranges.of(near.address(), far.address(), CALL + 100)
                        .add(
                                near.address() + CALL + 100,
                                far.address() + CALL + 100,
                                BYTES - CALL - 100);
        whole = Slice.cut(ranges, 1)[0];
    }

    @AfterEach
    void free() {
        arena.close();
    }

    private ControlPage page(Optional<ProcessIdentity> owner) throws IOException {
        Path path = folder.resolve("page" + System.nanoTime());
        try (FileChannel file = SharedFolder.create(path)) {
            return ControlPage.create(file, INCARNATION, owner, probe, arena);
        }
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
                return new Mapped[] {
                    new Mapped(far.address(), BYTES, NUMBER, SLOT, Access.OPEN, null)
                };
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

    /// Carries the slice, with something happening before the second call, and expects that only
    /// the first one copied anything.
    private void endsBeforeTheSecondCall(Runnable event, ErrorCode code) {
        assertThatThrownBy(() -> copier.carry(job(2, event), 0, whole))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
        assertThat(Bytes.mismatch(far, 0, CALL, 1)).isEqualTo(-1);
        assertThat(far.asSlice(CALL).mismatch(arena.allocate(BYTES - CALL)))
                .as("what follows is untouched")
                .isEqualTo(-1);
    }

    @Test
    void announcesEachCallAnew() {
        assertThat(copier.carry(job(0, () -> {}), 0, whole)).isTrue();
        assertThat(announced).isEqualTo(3);
        assertThat(Bytes.mismatch(far, 0, BYTES, 1)).isEqualTo(-1);
    }

    @Test
    void aRegionThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.closeRegion(SLOT), ErrorCode.PEER_REFUSED);
        assertThat(failedAt).isZero();
    }

    @Test
    void aSlotThatWasGivenToAnotherRegionShutsTheNextCallOut() {
        endsBeforeTheSecondCall(
                () -> {
                    control.closeRegion(SLOT);
                    control.openRegion(SLOT, NUMBER - 1, far.address(), BYTES, Access.OPEN);
                },
                ErrorCode.PEER_REFUSED);
    }

    @Test
    void aCapabilityThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.closeGrant(GRANT), ErrorCode.LEASE_EXPIRED);
    }

    @Test
    void anEngineThatIsClosedShutsTheNextCallOut() {
        endsBeforeTheSecondCall(() -> control.close(), ErrorCode.PEER_LOST);
    }

    /// As if the id belonged to another process now.
    @Test
    void aProcessWithoutTheProbeIsNotWrittenTo() {
        endsBeforeTheSecondCall(() -> probe.fill((byte) 0), ErrorCode.PEER_LOST);
    }

    @Test
    void theEndOfTheTransferEndsItBetweenCalls() {
        endsBeforeTheSecondCall(
                () -> {
                    throw new KvFerryException(ErrorCode.CANCELLED, "given up");
                },
                ErrorCode.CANCELLED);
    }

    @Test
    void memoryThatIsNotThereIsACodedFailureAtItsRange() {
        // A region that claims more than is mapped: the file behind it ends.
        assertThatThrownBy(() -> carryIntoAShortFile())
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.IO));
        assertThat(failedAt).isEqualTo(1);
    }

    private void carryIntoAShortFile() throws IOException {
        Path path = folder.resolve("short");
        try (FileChannel file = SharedFolder.create(path)) {
            MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 16 << 10, arena);
            file.truncate(8 << 10);
            control.openRegion(SLOT, NUMBER, mapped.address(), mapped.byteSize(), Access.OPEN);
            control.openGrant(GRANT, TOKEN, Extents.of(mapped.address(), mapped.byteSize()), 0);
            far = mapped;
            var ranges =
                    Ranges.of(near.address(), mapped.address(), 4 << 10)
                            .add(near.address(), mapped.address() + (4 << 10), 12 << 10);
            copier.carry(job(0, () -> {}), 0, Slice.cut(ranges, 1)[0]);
        }
    }

    @Test
    void attachesToNothingButTheProcessThatIsMeant() throws Exception {
        ProcessIdentity own = ProcessIdentity.own().orElseThrow();
        refused(new ProcessIdentity(own.pid(), own.startTicks() + 1, own.pidNamespace()));
        refused(new ProcessIdentity(own.pid(), own.startTicks(), own.pidNamespace() + 1));
        try (var other = new EngineProcess("bytes=4096")) {
            // The right start would not help it: what matters stands in its memory.
            refused(
                    new ProcessIdentity(
                            (int) other.pid(),
                            ProcessIdentity.startOf((int) other.pid()),
                            own.pidNamespace()));
        }
        assertThatThrownBy(() -> page(Optional.empty()).attachOwner(INCARNATION))
                .hasMessageContaining("does not offer");
    }

    private void refused(ProcessIdentity identity) {
        assertThatThrownBy(() -> page(Optional.of(identity)).attachOwner(INCARNATION))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE));
    }
}
