// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicBoolean;

/// Planes that have no thread for one piece of work: its transfers end with a code at once, and the
/// next one arrives.
class ScarcePlaneTest extends NcclPlaneCase {
    private static final ErrorCode NO_THREAD = Failure.of(new OutOfMemoryError()).code();

    @Test
    void aDialWithoutAThreadEndsItsTransfersAndTheNextOneDialsAnew() {
        var scarce = scarce(once(new AtomicBoolean(true)), Thread.ofVirtual().factory());
        var run = new Run(scarce, receiver, filled(1, 64, 1), placement(1, 64, 2));
        assertThat(code(await(run.sent))).isEqualTo(NO_THREAD);
        run.window.withdraw();
        new Run(scarce, receiver, filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
    }

    @Test
    void blocksThatNoThreadGathersEndTheLinkAndTheNextTransferArrives() {
        var none = new AtomicBoolean();
        var scarce = scarce(Thread.ofVirtual().factory(), once(none));
        var run = new Run(scarce, receiver, filled(2, 64, 1), placement(2, 64, 2));
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        none.set(true);
        run.sending.commit();
        assertThat(code(await(run.sent))).isEqualTo(NO_THREAD);
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
        new Run(scarce, receiver, filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
    }

    @Test
    void blocksThatNoThreadScattersEndTheLinkAndTheirWindow() {
        var scarce = scarce(Thread.ofVirtual().factory(), once(new AtomicBoolean(true)));
        var to = placement(1, 64, 2);
        var run = new Run(sender, scarce, filled(1, 64, 1), to);
        run.sending.commit();
        assertThat(code(await(run.received))).isEqualTo(NO_THREAD);
        assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
        assertThat(contents(to)).containsOnly(0);
        new Run(sender, scarce, filled(1, 64, 1), to).assertArrives();
    }

    /// No thread for the next piece of work where `none` says so.
    private static ThreadFactory once(AtomicBoolean none) {
        return work -> {
            if (none.getAndSet(false)) {
                throw new OutOfMemoryError("no thread, says the test");
            }
            return Thread.ofVirtual().unstarted(work);
        };
    }

    private NcclPlane scarce(ThreadFactory dials, ThreadFactory copiers) {
        var limits = new NcclPlane.Limits(SLOT, SOON, SOON, Duration.ofHours(1), 0);
        var plane =
                NcclPlane.open(
                        "test-scarce",
                        "127.0.0.1",
                        "127.0.0.1",
                        nccl.library(),
                        nccl.driver(),
                        limits,
                        dials,
                        copiers);
        planes.add(plane);
        return plane;
    }
}
