// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

class PushTaskTest {
    private final PushTask task =
            new PushTask(
                    new P2pPlan.Push(
                            "r",
                            "t",
                            new P2pPlan.Peer(List.of(), PeerMessage.ANY_EPOCH),
                            new PromptMark(1, 1),
                            List.of()));
    private final List<String> calls = new ArrayList<>();

    private final DataPlane.Sending sending =
            new DataPlane.Sending() {
                @Override
                public void available(int parts) {
                    calls.add("available " + parts);
                }

                @Override
                public boolean awaitSent(int parts, Deadline deadline) {
                    calls.add("await " + parts);
                    return true;
                }

                @Override
                public void commit() {
                    calls.add("commit");
                }

                @Override
                public void abort() {
                    calls.add("abort");
                }
            };

    @Test
    void whatWasComputedBeforeTheGrantIsSentAfterIt() {
        task.available(2);
        task.begun(sending);
        task.available(3);
        task.commit();
        assertThat(calls).containsExactly("available 2", "available 3", "commit");
    }

    /// The step is over then, and the blocks may be another request's.
    @Test
    void whatWasGivenUpBeforeTheGrantSendsNothing() {
        task.available(3);
        task.commit();
        task.giveUp();
        assertThat(task.await(Deadline.in(Duration.ofSeconds(20))))
                .isInstanceOf(DataPlane.Outcome.Failed.class);
        assertThat(task.mayBegin()).isFalse();
        task.begun(sending); // the loop had asked before
        assertThat(calls).containsExactly("abort");
    }

    @Test
    void waitingForALayerEndsWithThePush() {
        var ended = Deadline.in(Duration.ofSeconds(20));
        Thread.ofVirtual()
                .start(() ->
                        task.ended(
                                new DataPlane.Outcome.Failed(
                                        new Failure(ErrorCode.PEER_LOST, "gone"))));
        task.awaitSent(1, ended);
        assertThat(ended.passed()).isFalse();
        assertThat(calls).isEmpty();
    }
}
