// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.TransferOutcome;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/// A notification comes after the data that it announces, once, however many backends were tried.
class AgentNotificationTest {
    private static final byte[] NEWS = {1, 2, 3};
    private static final byte[] END = {};

    private final TestBackend a = new TestBackend("A");
    private final TestBackend b = new TestBackend("B");

    /// All that has arrived at the far agent: each backend delivers in order, so what comes after
    /// everything tells that nothing else is on its way.
    private List<Notification> received(AgentPair pair) throws Exception {
        for (var backend : List.of(a, b)) {
            backend.loseAnswers = false;
            backend.failure = Optional.empty();
            AgentPair.end(pair.near.submit(pair.write().requiring(backend.name()).notifying(END)));
        }
        var all = new ArrayList<Notification>();
        var limit = Deadline.in(Duration.ofSeconds(20));
        for (int ends = 0; ends < 2; ) {
            assertThat(limit.passed()).isFalse();
            for (var one : pair.far.drainNotifications(9)) {
                if (one.bytes().length == 0) {
                    ends++;
                } else {
                    all.add(one);
                }
            }
        }
        return all;
    }

    private static List<String> ways(List<Notification> received) {
        assertThat(received).allSatisfy(one -> assertThat(one.bytes()).isEqualTo(NEWS));
        return received.stream().map(Notification::backend).toList();
    }

    @Test
    void announcesWithTheBackendThatMovedTheData() throws Exception {
        try (var pair = new AgentPair(a, b)) {
            pair.nearBytes.fill((byte) 8);
            var transfer = pair.near.submit(pair.write().notifying(NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A");
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            assertThat(ways(received(pair))).containsExactly("A");
        }
    }

    @Test
    void announcesOnceWhenOnlyTheAnswerOfTheFirstAttemptIsLost() throws Exception {
        a.loseAnswers = true;
        try (var pair = new AgentPair(a, b)) {
            var transfer = pair.near.submit(pair.write().notifying(NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A", "B");
            assertThat(ways(received(pair))).containsExactly("B");
        }
    }

    @Test
    void announcesByTheNextBackendWhenTheFirstCannot() throws Exception {
        a.refuseNotify = true;
        try (var pair = new AgentPair(a, b)) {
            var transfer = pair.near.submit(pair.write().notifying(NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(ways(received(pair))).containsExactly("B");
        }
    }

    @Test
    void announcesNothingThatFailedOrWasCancelled() throws Exception {
        a.failure = Optional.of(TestBackend.LOST);
        a.quiesced = new CompletableFuture<>();
        b.failure = Optional.of(TestBackend.LOST);
        try (var pair = new AgentPair(a, b)) {
            var cancelled = pair.near.submit(pair.write().notifying(NEWS));
            assertThat(cancelled.cancel()).isTrue();
            a.quiesced.complete(null);
            var failed = pair.near.submit(pair.write().notifying(NEWS));

            assertThat(AgentPair.end(cancelled)).isInstanceOf(TransferOutcome.Cancelled.class);
            assertThat(AgentPair.end(failed)).isInstanceOf(TransferOutcome.Failed.class);
            assertThat(received(pair)).isEmpty();
        }
    }

    @Test
    void refusesANotificationThatNobodyWouldGet() {
        try (var pair = new AgentPair(a, b)) {
            long at = pair.nearMemory.address();
            var here = DescriptorList.of(MemoryKind.HOST, 0, at, 64);
            var there = DescriptorList.of(MemoryKind.HOST, 0, at + 1024, 64);
            var spec =
                    new TransferSpec(
                            Operation.WRITE,
                            pair.near.prepare(Optional.empty(), here),
                            pair.near.prepare(Optional.empty(), there),
                            Deadline.in(Duration.ofSeconds(20)));

            assertThatThrownBy(() -> pair.near.submit(spec.notifying(NEWS)))
                    .hasMessageContaining("nobody to notify");
        }
    }

    @Test
    void endsTransfersAlthoughNobodyCanBeToldOfThem() throws Exception {
        a.loseAnswers = true;
        EventSink broken =
                _ -> {
                    throw new IllegalStateException("a listener's defect");
                };
        try (var pair = new AgentPair(broken, a, b)) {
            assertThat(AgentPair.end(pair.near.submit(pair.write())))
                    .isInstanceOf(TransferOutcome.Done.class);
        }
    }
}
