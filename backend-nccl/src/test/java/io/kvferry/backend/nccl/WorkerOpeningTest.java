// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.GpuDriver;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

import org.junit.jupiter.api.Test;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Worker halves of which a part cannot be opened: the parts opened before it are closed.
class WorkerOpeningTest {
    /// No other test has threads of this rank.
    private static final RankInfo RANK = new RankInfo(61, 64, 61, 64, 0, 1);

    private static final OutOfMemoryError NO_MEMORY = new OutOfMemoryError("says the test");

    /// A worker half asks for the events last, when its other parts are open.
    private static final class NoMemoryForEvents implements HostServices {
        @Override
        public EventSink events() {
            throw NO_MEMORY;
        }

        @Override
        public TransferBackends transfers() {
            return HostServices.NONE.transfers();
        }

        @Override
        public StagingPool stagingPool() {
            return HostServices.NONE.stagingPool();
        }

        @Override
        public void wake() {}
    }

    @Test
    void aWorkerThatIsNotOpenedClosesItsPlaneAndLeavesNoThread() {
        var plane = new PlayedPlane();
        var options = P2pEngines.options("PUT", 0);
        var context = LoneRank.context(KvRole.PRODUCER, options, RANK, new NoMemoryForEvents());
        assertThatThrownBy(() -> new P2pWorker(context, plane)).isSameAs(NO_MEMORY);
        assertThat(plane.closed).isTrue();
        awaitNoThreads();
    }

    @Test
    void aWorkerOfVllmsProtocolThatIsNotOpenedClosesItsLanesAndLeavesNoThread() {
        var nccl = NcclDouble.load();
        var closed = new AtomicBoolean();
        var soon = P2pEngines.SOON;
        var lanes =
                new TensorLanes(
                        "p2p-vllm-" + RANK.rank(),
                        nccl.library(),
                        driver(nccl.driver(), closed),
                        new TensorLanes.Limits(soon, soon, 1 << 20, 0));
        var options = VllmP2p.options("PUT", 0, "flash_attn");
        var context = LoneRank.context(KvRole.PRODUCER, options, RANK, new NoMemoryForEvents());
        assertThatThrownBy(() -> new VllmWorker(context, lanes)).isSameAs(NO_MEMORY);
        assertThat(closed).isTrue();
        awaitNoThreads();
    }

    @Test
    void aHostPlaneThatIsNotOpenedClosesThePlaneOfNccl() {
        var nccl = new PlayedPlane();
        assertThatThrownBy(() ->
                        PlaneChoice.open(
                                PlaneChoice.Kind.AUTO,
                                () -> nccl,
                                () -> {
                                    throw NO_MEMORY;
                                }))
                .isSameAs(NO_MEMORY);
        assertThat(nccl.closed).isTrue();
    }

    @Test
    void aPlaneThatIsNotOpenedClosesTheDriverItWasToOwn() {
        var closed = new AtomicBoolean();
        var driver = driver(NcclDouble.load().driver(), closed);
        assertThatThrownBy(() ->
                        PlaneChoice.openOver(
                                driver,
                                _ -> {
                                    throw NO_MEMORY;
                                }))
                .isSameAs(NO_MEMORY);
        assertThat(closed).isTrue();
    }

    /// @param closed set when the driver is closed
    private static GpuDriver driver(GpuDriver real, AtomicBoolean closed) {
        return (GpuDriver)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("close")) {
                                closed.set(true);
                            }
                            try {
                                return method.invoke(real, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    private static void awaitNoThreads() {
        var limit = Deadline.in(P2pEngines.SOON);
        while (Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().endsWith("-" + RANK.rank()))) {
            assertThat(limit.passed()).as("a thread stays").isFalse();
            LockSupport.parkNanos(Duration.ofMillis(1).toNanos());
        }
    }
}
