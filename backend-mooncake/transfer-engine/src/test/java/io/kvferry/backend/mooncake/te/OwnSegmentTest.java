// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.WriteGrant.Writers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;

/// Transfers of an engine with itself. A stranger may have named it as the target: a prefiller
/// writes where its decoders say.
class OwnSegmentTest {
    private static final long BYTES = 1 << 16;

    private final Arena arena = Arena.ofShared();
    private final JavaTransferEngine engine =
            JavaTransferEngine.start(EngineConfig.from(Map.of("drain-timeout-ms", "300")));
    private final RegisteredMemory near = engine.allocate(BYTES);

    @AfterEach
    void close() {
        engine.close();
        arena.close();
    }

    private EngineRequest request(Operation operation, RegisteredMemory far) {
        return new EngineRequest(
                operation,
                engine.info().segmentName(),
                Ranges.of(near.address(), far.address(), BYTES),
                Deadline.in(Duration.ofSeconds(60)),
                "",
                0,
                0,
                Optional.empty());
    }

    private RegisteredMemory far(Access access) {
        near.memory().fill((byte) 7);
        return engine.allocate(BYTES, access, arena);
    }

    private void refused(EngineRequest request, RegisteredMemory far, ErrorCode code) {
        assertThat(engine.transfer(request))
                .isInstanceOfSatisfying(
                        Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(code));
        assertThat(far.memory().get(ValueLayout.JAVA_BYTE, 0)).as("of its memory").isZero();
        assertThat(near.memory().get(ValueLayout.JAVA_BYTE, 0)).as("of ours").isEqualTo((byte) 7);
    }

    @Test
    void memoryThatIsGrantedIsWrittenUnderAGrantOnly() {
        var far = far(Access.GRANTED);
        var write = request(Operation.WRITE, far);
        var closed = engine.grant(Extents.of(far.address(), BYTES), Writers.TOKEN);
        closed.close();
        refused(write, far, ErrorCode.PEER_REFUSED);
        refused(write.withCapability(closed.token()), far, ErrorCode.LEASE_EXPIRED);
        refused(request(Operation.READ, far), far, ErrorCode.PEER_REFUSED);
        try (var part = engine.grant(Extents.of(far.address(), BYTES / 2), Writers.TOKEN)) {
            refused(write.withCapability(part.token()), far, ErrorCode.LEASE_EXPIRED);
        }
        try (var all = engine.grant(Extents.of(far.address(), BYTES), Writers.TOKEN)) {
            refused(
                    request(Operation.READ, far).withCapability(all.token()),
                    far,
                    ErrorCode.LEASE_EXPIRED);
            assertThat(engine.transfer(write.withCapability(all.token())))
                    .isEqualTo(new Completed(BYTES, Guarantee.APPLIED, "local"));
        }
        assertThat(far.memory().mismatch(near.memory())).isEqualTo(-1);
    }

    @Test
    void aGrantForAnybodyHearsOfWhatArrived() {
        var far = far(Access.GRANTED);
        var extents = Extents.of(far.address(), BYTES);
        try (var grant = engine.grant(extents, Writers.ANY)) {
            assertThat(engine.transfer(request(Operation.WRITE, far)))
                    .isInstanceOf(Completed.class);
            assertThat(grant.received(extents)).isEqualTo(WriteGrant.Received.ALL);
        }
        assertThat(far.memory().mismatch(near.memory())).isEqualTo(-1);
    }

    @Test
    void keyedMemoryTakesItsKey() {
        var far = far(Access.KEYED);
        var write = request(Operation.WRITE, far);
        refused(write, far, ErrorCode.PEER_REFUSED);
        var keyed =
                new EngineRequest(
                        Operation.WRITE,
                        write.segmentName(),
                        write.ranges(),
                        write.deadline(),
                        "",
                        0,
                        engine.memoryKey(),
                        Optional.empty());
        assertThat(engine.transfer(keyed)).isInstanceOf(Completed.class);
        assertThat(far.memory().mismatch(near.memory())).isEqualTo(-1);
    }

    @Test
    void addressesOfAnEarlierEngineAreRefused() {
        var far = far(Access.OPEN);
        var write = request(Operation.WRITE, far);
        refused(write.withIncarnation("0".repeat(32)), far, ErrorCode.STALE_INCARNATION);
        assertThat(engine.transfer(write.withIncarnation(engine.info().incarnation())))
                .isInstanceOf(Completed.class);
    }

    /// Its file in the shared folder is the old memory's; peers on this host would copy there.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void memoryAtTheAddressOfFreedMemoryIsNotTakenForIt(boolean offered) {
        var seen = new HashSet<Long>();
        for (int i = 0; i < 50; i++) {
            try (var other = Arena.ofShared()) {
                MemorySegment memory =
                        offered || i % 2 == 0
                                ? engine.offer(BYTES, other).orElseThrow()
                                : other.allocate(BYTES, 4096);
                boolean again = !seen.add(memory.address());
                var registered = engine.register(memory);
                near.memory().fill((byte) (i + 1));
                var write = request(Operation.WRITE, registered);
                try (var peer = JavaTransferEngine.start(EngineConfig.from(Map.of()))) {
                    var from = peer.allocate(BYTES);
                    from.memory().fill((byte) (i + 1));
                    var over =
                            EngineRequest.write(
                                    write.segmentName(),
                                    Ranges.of(from.address(), registered.address(), BYTES),
                                    write.deadline());
                    assertThat(peer.transfer(over)).isInstanceOf(Completed.class);
                }
                assertThat(memory.mismatch(near.memory()))
                        .as("memory %d, at an address of before: %b", i, again)
                        .isEqualTo(-1);
                registered.close();
            }
        }
    }

    /// Whoever closes a load need not know that its engine has been closed before.
    @Test
    void aGrantIsClosedAfterItsEngine() {
        var far = far(Access.GRANTED);
        var grant = engine.grant(Extents.of(far.address(), BYTES), Writers.TOKEN);
        engine.close();
        grant.close();
    }
}
