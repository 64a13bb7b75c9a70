// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.PlaneClock;
import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

class LinkTest {
    private static final int PEERS = 3000;
    private static final int SLOT = 1 << 20;

    private final NcclDouble nccl = NcclDouble.load();

    /// Their threads end while the link still sets them up.
    @Test
    void connectionsThatEndAtOnceAreForgotten() throws IOException {
        try (var clock = new PlaneClock("test-clock")) {
            var loop = new GpuLoop("test-gpu", new NoDuties()); // not started: posted work waits
            var soon = PlaneRuns.SOON;
            var limits = new NcclPlane.Limits(SLOT, soon, soon, Duration.ofHours(1), 0);
            var gpu =
                    new Gpu(
                            "test",
                            nccl.library(),
                            nccl.driver(),
                            limits,
                            loop,
                            clock,
                            Thread.ofVirtual().factory(),
                            new AtomicReference<>());
            var transfers = new OpenTransfers("test");
            var links = new Links(gpu, new Intake("test", loop), transfers, _ -> {});
            var nonces = new LinkNonces(new byte[16], new byte[16]);
            for (int i = 0; i < PEERS; i++) {
                var ended = SocketChannel.open();
                ended.close();
                var link = links.add("127.0.0.1:" + i);
                link.answered(new LinkSocket("test-link", ended), nonces, SLOT);
                links.gone(link); // else adding the next ones takes long
            }
            var limit = Deadline.in(soon);
            while (links.connected() > 0 && !limit.passed()) {
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(links.connected()).isZero();
        }
    }

    private static final class NoDuties implements GpuLoop.Duties {
        @Override
        public void begin() {}

        @Override
        public GpuLoop.Pace look() {
            return GpuLoop.Pace.NONE;
        }

        @Override
        public boolean needed() {
            return false;
        }

        @Override
        public void end() {}
    }
}
