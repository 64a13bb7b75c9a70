// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/// A call of NCCL or of the driver that does not return: every transfer still ends with an outcome,
/// the plane reports the hang, and serves again once the call has returned.
@Timeout(300)
class HungCallTest {
    private static final long SLOT = 1 << 20;
    private static final Duration HASTY = Duration.ofSeconds(1);

    private final Arena arena = Arena.ofShared();
    private final NcclDouble nccl = NcclDouble.load();
    private final List<NcclPlane> planes = new ArrayList<>();

    @BeforeEach
    void reset() {
        nccl.reset();
    }

    @AfterEach
    void close() {
        planes.forEach(NcclPlane::close);
        nccl.assertClean();
        arena.close();
    }

    /// @param turn after which a call counts as hung
    private NcclPlane plane(GpuDriver driver, Duration turn) {
        var limits = new NcclPlane.Limits(SLOT, SOON, turn, Duration.ofHours(1), 0);
        var plane =
                NcclPlane.open(
                        "hung-" + planes.size(),
                        "127.0.0.1",
                        "127.0.0.1",
                        nccl.library(),
                        driver,
                        limits);
        planes.add(plane);
        return plane;
    }

    private Placement blocks(int... blocks) {
        return PlaneRuns.placement(arena, 2, 4096, blocks);
    }

    private Placement filled(int... blocks) {
        var placement = blocks(blocks);
        fill(placement, new Random(blocks.length));
        return placement;
    }

    /// The limits are short for a busy machine: what is in order may fail a few times.
    private void assertArrivesInTheEnd(NcclPlane from, NcclPlane to) {
        var limit = Deadline.in(SOON.multipliedBy(2));
        while (true) {
            var run = new Run(from, to, filled(1, 2), blocks(3, 4));
            run.sending.commit();
            if (limit.passed() || await(run.sent) instanceof Outcome.Done) {
                run.assertArrives();
                return;
            }
            run.window.withdraw();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// A transfer in which the call hangs. On a busy machine an earlier call may have taken longer
    /// than these limits.
    private static Run hang(HangingDriver hanging, NcclPlane from, NcclPlane to, Runs next) {
        hanging.hang();
        var limit = Deadline.in(SOON);
        while (true) {
            var run = next.begin(from, to);
            run.sending.commit();
            while (!hanging.hangs() && !run.sent.isDone()) {
                LockSupport.parkNanos(1_000_000);
            }
            if (hanging.hangs()) {
                return run;
            }
            assertThat(limit.passed()).as("the call never came: %s", run.sent).isFalse();
            run.window.withdraw();
        }
    }

    private Run anyRun(NcclPlane from, NcclPlane to) {
        return new Run(from, to, filled(1, 2), blocks(3, 4));
    }

    private interface Runs {
        Run begin(NcclPlane from, NcclPlane to);
    }

    private static void awaitTrouble(NcclPlane plane, boolean present) {
        var limit = Deadline.in(SOON);
        while (plane.trouble().isPresent() != present) {
            assertThat(limit.passed()).as("trouble %s", plane.trouble()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    @Test
    void aGroupThatHangsIsAbortedAndBothEndsHearOfIt() {
        var a = plane(nccl.driver(), HASTY);
        var b = plane(nccl.driver(), HASTY);
        assertArrivesInTheEnd(a, b);
        for (int hanging = 1; hanging <= 2; hanging++) {
            nccl.set(Knob.HANG_GROUP, hanging);
            var run = new Run(a, b, filled(1, 2), blocks(3, 4));
            run.sending.commit();
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            run.window.withdraw(); // where it did not come to it in time
            assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
            nccl.set(Knob.HANG_GROUP, 0);
            nccl.assertClean();
            awaitTrouble(a, false);
            awaitTrouble(b, false);
            assertArrivesInTheEnd(a, b);
        }
        assertThat(nccl.count(Count.ABORTS)).isPositive();
    }

    @Test
    void whileTheDriverHangsAllTransfersEndAndAfterwardsThePlaneServes() {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        var a = plane(hanging.driver(), HASTY);
        var b = plane(nccl.driver(), SOON);
        assertArrivesInTheEnd(a, b);
        var waits = new CompletableFuture<Outcome>();
        a.receive(Grant.draw(), blocks(1), Deadline.in(SOON), waits::complete);
        try {
            var run = hang(hanging, a, b, this::anyRun);
            assertThat(code(await(run.sent))).isEqualTo(ErrorCode.TIMEOUT);
            assertThat(await(run.received)).as("the peer").isInstanceOf(Outcome.Failed.class);
            assertThat(code(await(waits))).as("not of that link").isEqualTo(ErrorCode.TIMEOUT);
            assertThat(a.trouble()).get().asString().contains("has not returned");
            assertThat(b.trouble()).isEmpty();
            assertThat(a.refuses("127.0.0.1:1")).isTrue();

            var late = new CompletableFuture<Outcome>();
            a.send(b.address(), Grant.draw(), filled(1), Deadline.in(SOON), late::complete);
            assertThat(code(await(late))).isEqualTo(ErrorCode.TIMEOUT);
            var lateWindow = new CompletableFuture<Outcome>();
            a.receive(Grant.draw(), blocks(1), Deadline.in(SOON), lateWindow::complete);
            assertThat(code(await(lateWindow))).isEqualTo(ErrorCode.TIMEOUT);
        } finally {
            hanging.release();
        }
        awaitTrouble(a, false);
        assertArrivesInTheEnd(a, b);
    }

    @Test
    void aWindowThatEndedWhileTheDriverHungIsNotWrittenAfterwards() {
        var hanging = new HangingDriver(nccl.driver(), "download");
        var a = plane(nccl.driver(), SOON);
        var b = plane(hanging.driver(), HASTY);
        assertArrivesInTheEnd(a, b);
        var to = blocks(3, 4);
        try {
            var run = hang(hanging, a, b, (from, into) -> new Run(from, into, filled(1, 2), to));
            assertThat(code(await(run.received))).isEqualTo(ErrorCode.TIMEOUT);
            for (var part : to.parts()) {
                part.segment().fill((byte) 0x55); // somebody else's by now
            }
        } finally {
            hanging.release();
        }
        awaitTrouble(b, false);
        assertArrivesInTheEnd(a, b);
        var quiet = new byte[(int) to.bytes()];
        Arrays.fill(quiet, (byte) 0x55);
        assertThat(contents(to)).isEqualTo(quiet);
    }

    @Test
    void closingDoesNotWaitForACallThatHangs() {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        var a = plane(hanging.driver(), HASTY);
        var b = plane(nccl.driver(), SOON);
        assertArrivesInTheEnd(a, b);
        try {
            var run = hang(hanging, a, b, this::anyRun);
            awaitTrouble(a, true);
            a.close();
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            assertThat(hanging.isClosed()).as("a driver in a call").isFalse();
        } finally {
            hanging.release(); // what it had is freed all the same
        }
        nccl.assertClean();
        hanging.awaitClosed();
    }

    /// The plane does not know yet that the call hangs, and its other link could end in order.
    @Test
    void whatALinkHasIsFreedWhereThePlaneIsClosedBeforeTheHangIsFound() {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        var a =
                NcclPlane.open(
                        "closed-early",
                        "127.0.0.1",
                        "127.0.0.1",
                        nccl.library(),
                        hanging.driver(),
                        new NcclPlane.Limits(SLOT, SOON, SOON, Duration.ofHours(1), 0),
                        Duration.ofMillis(300));
        planes.add(a);
        var b = plane(nccl.driver(), SOON);
        var c = plane(nccl.driver(), SOON);
        assertArrivesInTheEnd(a, b);
        assertArrivesInTheEnd(a, c);
        try {
            var run = hang(hanging, a, b, this::anyRun);
            a.close();
            assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CLOSED);
            assertThat(hanging.isClosed()).as("a driver in a call").isFalse();
        } finally {
            hanging.release();
        }
        b.close();
        c.close();
        nccl.assertClean();
        hanging.awaitClosed();
    }

    /// Before the hang is found, too: no more than so many transfers begin.
    @Test
    void whatWaitsForTheDriverIsBounded() {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        var a = plane(hanging.driver(), SOON);
        var b = plane(nccl.driver(), SOON);
        assertArrivesInTheEnd(a, b);
        hanging.hang();
        try {
            new Run(a, b, filled(1, 2), blocks(3, 4)).sending.commit();
            hanging.awaitHang();
            var to = blocks(5);
            for (int begun = 0; ; begun++) {
                var ended = new CompletableFuture<Outcome>();
                a.receive(Grant.draw(), to, Deadline.in(SOON), ended::complete);
                if (ended.isDone()) {
                    assertThat(code(await(ended))).isEqualTo(ErrorCode.BACKPRESSURE);
                    break;
                }
                assertThat(begun).isLessThan(1 << 14);
            }
        } finally {
            hanging.release();
        }
    }
}
