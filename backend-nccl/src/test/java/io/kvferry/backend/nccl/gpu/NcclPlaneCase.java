// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/// A sender and a receiver over the C double of NCCL. What is open is closed after each test, and
/// nothing of the device may stay.
abstract class NcclPlaneCase {
    static final long SLOT = 1 << 20;

    final Arena arena = Arena.ofShared();
    final NcclDouble nccl = NcclDouble.load();
    final List<NcclPlane> planes = new ArrayList<>();
    NcclPlane sender;
    NcclPlane receiver;

    @BeforeEach
    void open() {
        nccl.reset();
        sender = plane(SOON);
        receiver = plane(SOON);
    }

    @AfterEach
    void close() {
        planes.forEach(NcclPlane::close);
        nccl.assertClean();
        arena.close();
    }

    NcclPlane plane(Duration limit) {
        var plane = PlanePair.plane(nccl, "test-" + planes.size(), SLOT, limit);
        planes.add(plane);
        return plane;
    }

    Placement placement(int layers, long blockBytes, int... blocks) {
        return PlaneRuns.placement(arena, layers, blockBytes, blocks);
    }

    Placement filled(int layers, long blockBytes, int... blocks) {
        var placement = placement(layers, blockBytes, blocks);
        fill(placement, new Random(layers + blockBytes));
        return placement;
    }

    Run run(Placement from, Placement to) {
        return new Run(sender, receiver, from, to);
    }

    /// A busy machine may need longer than the limits of such a plane.
    void assertArrivesInTheEnd(NcclPlane hasty) {
        for (int tries = 0; ; tries++) {
            var run = new Run(hasty, receiver, filled(1, 64, 1), placement(1, 64, 2));
            run.sending.commit();
            if (tries == 15 || await(run.sent) instanceof Outcome.Done) {
                run.assertArrives();
                return;
            }
            run.window.withdraw();
        }
    }
}
