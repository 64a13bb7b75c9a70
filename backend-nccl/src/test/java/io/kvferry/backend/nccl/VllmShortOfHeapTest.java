// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// What a rank with protocol 0 reports where the heap is full when a transfer ends.
class VllmShortOfHeapTest {
    @TempDir Path root;

    @Test
    void reportsTheEndOfLoadsAndHoldsThatEndWhileTheHeapIsFull() throws Exception {
        var nccl = NcclDouble.load().file().toString();
        assertThat(FullHeap.run(root, 32, Duration.ofSeconds(120), Child.class, nccl))
                .contains("both are reported");
    }

    static final class Child {
        private static final long FULL_NANOS = TimeUnit.MILLISECONDS.toNanos(300);
        private static final Duration SOON = Duration.ofSeconds(10);
        private static final Outcome DONE = new Outcome.Done(5000);

        private static volatile boolean full;

        private Child() {}

        public static void main(String[] args) throws Exception {
            var nccl = NcclDouble.load(Path.of(args[0]));
            var options = VllmP2p.options("GET", 0, "flash_attn");
            var context =
                    LoneRank.context(
                            KvRole.CONSUMER,
                            options,
                            RankInfo.SINGLE,
                            P2pEngines.host(StagingPool.NONE));
            var worker = (VllmWorker) new VllmP2p(nccl).openWorker(context);
            var load = TransferId.load("r", 0);
            var hold = TransferId.save("r", 0);
            end(worker, TransferId.load("warm", 0), TransferId.save("warm", 0));
            LockSupport.parkNanos(1); // loads what the work below uses
            var ends =
                    new Thread[] {
                        whenFull(() -> worker.loadEnded(load, DONE)),
                        whenFull(() -> worker.holdEnded(hold, DONE))
                    };
            FullHeap.during(() -> {
                full = true;
                LockSupport.parkNanos(FULL_NANOS);
            });
            for (var each : ends) {
                each.join();
            }
            var step = new WorkerStep(1, Payload.EMPTY, List.of(), true, Deadline.in(SOON));
            var reported = worker.report(step).completions();
            System.out.println();
            for (var id : new TransferId[] {load, hold}) {
                assertThat(reported)
                        .contains(new Completion(id, 0, new Completion.Completed(5000)));
            }
            System.out.println("both are reported");
            System.exit(0);
        }

        private static void end(VllmWorker worker, TransferId load, TransferId hold) {
            worker.loadEnded(load, DONE);
            worker.holdEnded(hold, DONE);
        }

        /// On a thread of its own, which has no memory of its own yet.
        private static Thread whenFull(Runnable work) {
            return Thread.ofPlatform()
                    .start(() -> {
                        while (!full) {
                            Thread.onSpinWait();
                        }
                        work.run();
                    });
        }
    }
}
