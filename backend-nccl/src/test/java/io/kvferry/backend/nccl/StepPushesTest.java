// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

class StepPushesTest {
    private static final Duration PUSH_LIMIT = Duration.ofMillis(300);
    private static final String STALLED = "stalled";

    /// No push ends before it is given up. The stalled one is not sent either, and when it is given
    /// up, all others have arrived.
    private static final class Service implements StepPushes.Pushes {
        private final List<String> tooSlow = new ArrayList<>();
        private final List<PushTask> tasks = new ArrayList<>();

        @Override
        public PushTask push(P2pPlan.Push plan) {
            var task = new PushTask(plan);
            boolean stalled = plan.transfer().equals(STALLED);
            task.begun(
                    new DataPlane.Sending() {
                        @Override
                        public void available(int parts) {}

                        @Override
                        public boolean awaitSent(int parts, Deadline deadline) {
                            return !stalled || pass(deadline);
                        }

                        @Override
                        public void commit() {}

                        @Override
                        public void abort() {
                            task.ended(
                                    new Outcome.Failed(
                                            new Failure(ErrorCode.CANCELLED, "given up")));
                            if (stalled) {
                                tasks.forEach(other -> other.ended(new Outcome.Done(1)));
                            }
                        }
                    });
            tasks.add(task);
            return task;
        }

        @Override
        public void giveUp(PushTask task) {
            task.giveUp();
        }

        @Override
        public void tooSlow(PushTask task) {
            tooSlow.add(task.plan().transfer());
        }
    }

    /// @return false, when the deadline has passed
    private static boolean pass(Deadline deadline) {
        while (!deadline.passed()) {
            LockSupport.parkNanos(deadline.remainingNanos());
        }
        return false;
    }

    private static P2pPlan.Push push(String transfer) {
        var decoder = new P2pPlan.Peer(List.of("127.0.0.1:9"), PeerMessage.ANY_EPOCH);
        return new P2pPlan.Push("r", transfer, decoder, new PromptMark(1, 1), List.of());
    }

    private final Service service = new Service();
    private final StepPushes pushes =
            new StepPushes(
                    P2pSettings.from(
                            new P2pNcclConnectorProvider()
                                    .options()
                                    .read(
                                            "t",
                                            Map.of(
                                                    "send_type",
                                                    "PUT",
                                                    "push_timeout",
                                                    PUSH_LIMIT.toMillis() + "ms"))),
                    service);

    private Duration end() {
        long begin = System.nanoTime();
        pushes.end(Deadline.in(Duration.ofMinutes(10)), Set.of());
        return Duration.ofNanos(System.nanoTime() - begin);
    }

    @Test
    void whatTheModelTakesBetweenTwoLayersIsNoWaiting() {
        pushes.begin(List.of(push("t")));
        pushes.saved(1);
        var _ = pass(Deadline.in(PUSH_LIMIT)); // the model computes
        pushes.saved(2);
        assertThat(end()).isGreaterThanOrEqualTo(PUSH_LIMIT);
        assertThat(service.tooSlow).containsExactly("t");
        assertThat(StepPushes.readReport(pushes.takeReport())).isEmpty();
    }

    @Test
    void aDecoderThatStallsCostsNoOtherItsTime() {
        pushes.begin(List.of(push(STALLED), push("t")));
        pushes.saved(1); // for which it waits as long as the step may
        pushes.saved(2);
        assertThat(end()).as("what the other has to arrive").isGreaterThanOrEqualTo(PUSH_LIMIT);
        assertThat(service.tooSlow).containsExactly(STALLED);
        assertThat(StepPushes.readReport(pushes.takeReport())).containsExactly("t");
    }
}
