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
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/// A notification comes after the data that it announces, once, however many backends were tried.
class AgentNotificationTest {
    private static final byte[] NEWS = {1, 2, 3};
    private static final byte[] END = {};

    private final TestBackend a = new TestBackend("A");
    private final TestBackend b = new TestBackend("B");

    /// All notifications that have arrived at the far agent. Each backend delivers in order, so a
    /// final marker sent through every backend shows that nothing else is in flight.
    private List<byte[]> received(AgentPair pair) throws Exception {
        a.loseAnswers = false;
        a.refuseNotify = false;
        for (var backend : List.of(a, b)) {
            backend.failure = Optional.empty();
            var other = backend == a ? b : a;
            other.refusing = true;
            var transfer = pair.near.submit(AgentPair.notifying(pair.write(), END));
            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            other.refusing = false;
        }
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (pair.farEar.notes.stream().filter(one -> one.bytes().length == 0).count() < 2) {
            assertThat(limit.passed()).isFalse();
        }
        return pair.farEar.notes.stream()
                .map(AgentPair.Ear.Note::bytes)
                .filter(bytes -> bytes.length > 0)
                .toList();
    }

    private static void once(List<byte[]> received) {
        assertThat(received).containsExactly(NEWS);
    }

    @Test
    void announcesWithTheBackendThatMovedTheData() throws Exception {
        try (var pair = new AgentPair(a, b)) {
            pair.nearBytes.fill((byte) 8);
            var transfer = pair.near.submit(AgentPair.notifying(pair.write(), NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A");
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            once(received(pair));
        }
    }

    @Test
    void announcesOnceWhenOnlyTheAnswerOfTheFirstAttemptIsLost() throws Exception {
        a.loseAnswers = true;
        try (var pair = new AgentPair(a, b)) {
            var transfer = pair.near.submit(AgentPair.notifying(pair.write(), NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A", "B");
            once(received(pair));
        }
    }

    @Test
    void announcesByTheNextBackendWhenTheFirstCannot() throws Exception {
        a.refuseNotify = true;
        try (var pair = new AgentPair(a, b)) {
            var transfer = pair.near.submit(AgentPair.notifying(pair.write(), NEWS));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            once(received(pair));
        }
    }

    @Test
    void announcesNothingThatFailedOrWasCancelled() throws Exception {
        a.failure = Optional.of(TestBackend.LOST);
        a.quiesced = new CompletableFuture<>();
        b.failure = Optional.of(TestBackend.LOST);
        try (var pair = new AgentPair(a, b)) {
            var cancelled = pair.near.submit(AgentPair.notifying(pair.write(), NEWS));
            assertThat(cancelled.cancel()).isTrue();
            a.quiesced.complete(null);
            var failed = pair.near.submit(AgentPair.notifying(pair.write(), NEWS));

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
                    new TransferRequest(
                            Operation.WRITE,
                            pair.near.prepare(Optional.empty(), here),
                            pair.near.prepare(Optional.empty(), there),
                            Deadline.in(Duration.ofSeconds(20)));

            assertThatThrownBy(() -> pair.near.submit(AgentPair.notifying(spec, NEWS)))
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
