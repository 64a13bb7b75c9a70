// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/// NVIDIA's NCCL between two GPUs of this machine; skipped where there are fewer, or no NCCL: it
/// refuses two ranks on one GPU.
@Timeout(900)
class TwoGpusTest {
    private static final int BLOCK = 1 << 20;
    private static final int PEERS = 16;

    private final Arena arena = Arena.ofShared();
    private final List<NcclPlane> planes = new ArrayList<>();

    @BeforeEach
    void twoGpus() {
        try {
            var _ = NcclLibrary.load();
            try (var one = JcudaDriver.open(0);
                    var other = JcudaDriver.open(1)) {
                Assumptions.assumeFalse(one.name().equals(other.name()), "one GPU: P22 needs two");
            }
        } catch (KvFerryException e) {
            Assumptions.abort("P22 needs two GPUs and NCCL: " + e.getMessage());
        }
    }

    @AfterEach
    void close() {
        planes.forEach(NcclPlane::close);
        arena.close();
    }

    private NcclPlane plane(int gpu) {
        var limits = new NcclPlane.Limits(64L << 20, SOON, SOON, Duration.ofHours(1), 0);
        var plane =
                NcclPlane.open(
                        "gpu-" + gpu + "-" + planes.size(),
                        "127.0.0.1",
                        "127.0.0.1",
                        NcclLibrary.load(),
                        JcudaDriver.open(gpu),
                        limits);
        planes.add(plane);
        return plane;
    }

    private Placement blocks(long bytes) {
        int block = (int) Math.min(bytes, BLOCK);
        int count = (int) (bytes / block);
        var all = IntStream.range(0, count).toArray();
        return new Placement(
                List.of(new Placement.Part(0, arena.allocate(bytes, 64), block, block, all)));
    }

    private Placement filled(long bytes) {
        var placement = blocks(bytes);
        PlaneRuns.fill(placement, new Random(bytes));
        return placement;
    }

    @Test
    @DisplayName("P22 what a GPU sends to another is equal, from a byte to a GiB")
    void everySizeArrives() {
        var from = plane(0);
        var to = plane(1);
        for (long bytes : new long[] {1, 4095, 64 << 10, 1 << 20, 64 << 20, 1 << 30}) {
            new Run(from, to, filled(bytes), blocks(bytes)).assertArrives();
        }
    }

    @Test
    @DisplayName("P22 sixteen peers at once")
    void sixteenPeersAtOnce() {
        var from = plane(0);
        var runs = new ArrayList<Run>();
        for (int i = 0; i < PEERS; i++) {
            runs.add(new Run(from, plane(1), filled(16 << 20), blocks(16 << 20)));
        }
        runs.forEach(run -> run.sending.commit());
        runs.forEach(Run::assertArrives);
    }

    @Test
    @DisplayName("P22 an abort in the middle ends within five seconds, and the planes go on")
    void anAbortEndsInTimeAndThePlanesGoOn() {
        var from = plane(0);
        var to = plane(1);
        new Run(from, to, filled(1 << 20), blocks(1 << 20)).assertArrives();
        for (int i = 0; i < 5; i++) {
            var run = new Run(from, to, filled(512 << 20), blocks(512 << 20));
            run.sending.available(1);
            run.sending.abort();
            assertThat(run.sent.orTimeout(5, TimeUnit.SECONDS).join())
                    .isInstanceOf(Outcome.Failed.class);
            assertThat(run.received.orTimeout(5, TimeUnit.SECONDS).join())
                    .isInstanceOf(Outcome.Failed.class);
            new Run(from, to, filled(1 << 20), blocks(1 << 20)).assertArrives();
        }
    }
}
