// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

class StepPushesTest {
    private static final Duration PUSH_LIMIT = Duration.ofSeconds(3);

    /// Says the end of a push shortly after its commit.
    private static final class Service implements StepPushes.Pushes {
        private boolean tooSlow;

        @Override
        public PushTask push(P2pPlan.Push plan) {
            var task = new PushTask(plan);
            task.begun(
                    new DataPlane.Sending() {
                        @Override
                        public void available(int parts) {}

                        @Override
                        public boolean awaitSent(int parts, Deadline deadline) {
                            return true;
                        }

                        @Override
                        public void commit() {
                            Thread.ofVirtual()
                                    .start(() -> {
                                        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
                                        task.ended(new Outcome.Done(1));
                                    });
                        }

                        @Override
                        public void abort() {}
                    });
            return task;
        }

        @Override
        public void giveUp(PushTask task) {
            task.giveUp();
        }

        @Override
        public void tooSlow(PushTask task) {
            tooSlow = true;
        }
    }

    @Test
    void whatTheModelTakesBetweenTwoLayersIsNoWaiting() {
        var options =
                Map.<String, Object>of(
                        "send_type", "PUT", "push_timeout", PUSH_LIMIT.toSeconds() + "s");
        var settings =
                P2pSettings.from(new P2pNcclConnectorProvider().options().read("t", options));
        var service = new Service();
        var pushes = new StepPushes(settings, service);
        var decoder = new P2pPlan.Peer(List.of("127.0.0.1:9"), PeerMessage.ANY_EPOCH);
        var prompt = new PromptMark(1, 1);
        pushes.begin(List.of(new P2pPlan.Push("r", "t", decoder, prompt, List.of())));
        pushes.saved(1);
        var computed = Deadline.in(PUSH_LIMIT);
        while (!computed.passed()) {
            LockSupport.parkNanos(computed.remainingNanos());
        }
        pushes.saved(2);
        pushes.end(Deadline.in(Duration.ofMinutes(10)), Set.of());
        assertThat(service.tooSlow).isFalse();
        assertThat(StepPushes.readReport(pushes.takeReport())).containsExactly("t");
    }
}
