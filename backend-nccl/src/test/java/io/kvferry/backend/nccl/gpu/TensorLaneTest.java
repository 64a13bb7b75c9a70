// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

import java.lang.foreign.ValueLayout;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.CompletableFuture;

/// A device that fails in the middle of a lane's work, over the C double of NCCL.
class TensorLaneTest {
    private static final long BYTES = 1000;

    private final NcclDouble nccl = NcclDouble.load();
    private volatile @Nullable Throwable failure;

    private GpuDriver driver() {
        return over(GpuDriver.class, nccl.driver());
    }

    /// What copies to the device fails while there is a failure.
    private <T> T over(Class<T> type, T real) {
        return type.cast(
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {type},
                        (_, method, arguments) -> {
                            var now = failure;
                            if (now != null && method.getName().equals("upload")) {
                                throw now;
                            }
                            try {
                                var made = method.invoke(real, arguments);
                                return made instanceof GpuDriver.Stream stream
                                        ? over(GpuDriver.Stream.class, stream)
                                        : made;
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        }));
    }

    private TensorLanes lanes(GpuDriver driver) {
        return new TensorLanes(
                "lanes",
                nccl.library(),
                driver,
                new TensorLanes.Limits(PlaneRuns.SOON, PlaneRuns.SOON, 1 << 20, 0));
    }

    /// NO_MEMORY says to who owns a lane that it goes on.
    @Test
    void aLaneThatHasFailedForWantOfMemoryIsNotUsedOn() {
        assertFails(new KvFerryException(ErrorCode.NO_MEMORY, "cudaMemcpyAsync"), ErrorCode.IO);
    }

    @Test
    void aDefectEndsItsLaneAndNoOther() {
        assertFails(new AssertionError("a defect"), ErrorCode.INTERNAL);
    }

    private void assertFails(Throwable how, ErrorCode code) {
        nccl.reset();
        try (var failing = lanes(driver());
                var sound = lanes(nccl.driver())) {
            var id = failing.uniqueId();
            try (var lane = failing.open("peer", id, 0);
                    var _ = sound.open("peer", id, 1)) {
                lane.awaitReady();
                var _ = lane.buffer(BYTES);
                failure = how;
                assertThatThrownBy(() -> lane.send(BYTES)).satisfies(e -> hasCode(e, code));
                assertThatThrownBy(() -> lane.buffer(BYTES)).satisfies(e -> hasCode(e, code));
                failure = null;
                var next = failing.uniqueId();
                try (var from = failing.open("peer", next, 0);
                        var to = sound.open("peer", next, 1)) {
                    from.awaitReady();
                    to.awaitReady();
                    from.buffer(BYTES).fill((byte) 7);
                    var there = to.buffer(BYTES);
                    var sending = CompletableFuture.runAsync(() -> from.send(BYTES));
                    to.receive(BYTES);
                    sending.join();
                    assertThat(there.get(ValueLayout.JAVA_BYTE, BYTES - 1)).isEqualTo((byte) 7);
                }
            }
        }
        nccl.assertClean();
    }

    private static void hasCode(Throwable thrown, ErrorCode code) {
        assertThat(thrown)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }
}
