// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/// Transfers through an agent: which backend, why, and what happens when it fails.
class AgentTransferTest {
    private static final Failure LOST = new Failure(ErrorCode.PEER_LOST, "connection reset");

    private static void refused(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    private static List<String> ranking(TransferPlan plan) {
        return plan.usable().stream().map(TransferPlan.Candidate::backend).toList();
    }

    @Test
    void writesAndReads() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            pair.nearBytes.fill((byte) 7);
            var written = pair.near.submit(pair.write());
            assertThat(AgentPair.end(written)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);

            pair.farBytes.fill((byte) 9);
            assertThat(AgentPair.end(pair.near.submit(pair.read())))
                    .isInstanceOf(TransferOutcome.Done.class);
            assertThat(pair.nearBytes.mismatch(pair.farBytes)).isEqualTo(-1);
            written.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
            assertThat(written.attempts()).containsExactly("A");
            assertThat(pair.near.peer("far").orElseThrow().state()).isEqualTo(PeerState.READY);
        }
    }

    @Test
    void measuresEachBackend() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"), new TestBackend("B"))) {
            for (int i = 0; i < 3; i++) {
                AgentPair.end(pair.near.submit(pair.write()));
            }
            var figures = pair.near.drainStats();
            assertThat(
                            figures.counters().getOrDefault("A/transfers", 0L)
                                    + figures.counters().getOrDefault("B/transfers", 0L))
                    .isEqualTo(3);
            assertThat(
                            figures.counters().getOrDefault("A/transfer_bytes", 0L)
                                    + figures.counters().getOrDefault("B/transfer_bytes", 0L))
                    .isEqualTo(3L * AgentPair.BYTES);
            assertThat(figures.counters()).doesNotContainKeys("A/transfer_failures");
            assertThat(pair.near.drainStats().isEmpty()).isTrue();
        }
    }

    @Test
    void copiesWithinOneAgent() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            pair.nearBytes.asSlice(0, 64).fill((byte) 5);
            long at = pair.nearMemory.address();
            var local =
                    pair.near.prepare(
                            Optional.empty(), DescriptorList.of(MemoryKind.HOST, 0, at, 64));
            var other =
                    pair.near.prepare(
                            Optional.empty(), DescriptorList.of(MemoryKind.HOST, 0, at + 1024, 64));

            var done =
                    AgentPair.end(
                            pair.near.submit(
                                    new TransferRequest(
                                            Operation.WRITE,
                                            local,
                                            other,
                                            Deadline.in(Duration.ofSeconds(9)))));

            assertThat(done).isInstanceOf(TransferOutcome.Done.class);
            assertThat(pair.nearBytes.asSlice(1024, 64).mismatch(pair.nearBytes.asSlice(0, 64)))
                    .isEqualTo(-1);
        }
    }

    @Test
    void postsAPreparedListManyTimes() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            var spec = pair.write();
            for (int i = 1; i < 20; i++) {
                pair.nearBytes.fill((byte) i);
                AgentPair.end(pair.near.submit(spec));
                assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            }
            spec.local().close();
            refused(ErrorCode.INVALID_REQUEST, () -> pair.near.submit(spec));
        }
    }

    @Test
    void postsInPiecesWhatABackendDoesNotTakeAtOnce() throws Exception {
        for (var threading : List.of("concurrent", "confined")) {
            var small =
                    new TestBackend(
                            "A",
                            new ArrayList<>(),
                            Map.of("max_bytes", "1KiB", "threading", threading));
            try (var pair = new AgentPair(small)) {
                for (int i = 0; i < AgentPair.BYTES; i++) {
                    pair.nearBytes.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31));
                }
                var local =
                        DescriptorList.builder(MemoryKind.HOST)
                                .addStrided(0, pair.nearMemory.address(), 96, 100, 40)
                                .build();
                var remote =
                        DescriptorList.builder(MemoryKind.HOST)
                                .addStrided(0, pair.farMemory.address(), 96, 100, 40)
                                .build();
                var spec =
                        new TransferRequest(
                                Operation.WRITE,
                                pair.near.prepare(Optional.empty(), local),
                                pair.near.prepare(Optional.of(pair.far.self()), remote),
                                Deadline.in(Duration.ofSeconds(9)));

                assertThat(
                                AgentPair.end(
                                        pair.near.submit(
                                                AgentPair.notifying(spec, new byte[] {1}))))
                        .isInstanceOfSatisfying(
                                TransferOutcome.Done.class,
                                done -> assertThat(done.bytes()).isEqualTo(3840));
                for (int i = 0; i < 40; i++) {
                    assertThat(
                                    pair.farBytes
                                            .asSlice(i * 100L, 96)
                                            .mismatch(pair.nearBytes.asSlice(i * 100L, 96)))
                            .isEqualTo(-1);
                }
                assertThat(pair.awaitNotes(pair.farEar, 1)).hasSize(1);
            }
        }
    }

    @Test
    void refusesSidesThatDoNotFit() {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            var half =
                    pair.near.prepare(
                            Optional.empty(),
                            DescriptorList.of(MemoryKind.HOST, 0, pair.nearMemory.address(), 64));
            var deadline = Deadline.in(Duration.ofSeconds(9));

            refused(
                    ErrorCode.INVALID_REQUEST,
                    () ->
                            pair.near.submit(
                                    new TransferRequest(
                                            Operation.WRITE, half, pair.remote(), deadline)));
            refused(
                    ErrorCode.INVALID_REQUEST,
                    () ->
                            pair.near.submit(
                                    new TransferRequest(
                                            Operation.WRITE,
                                            pair.remote(),
                                            pair.local(),
                                            deadline)));
            refused(
                    ErrorCode.NOT_FOUND,
                    () ->
                            pair.near.prepare(
                                    Optional.empty(),
                                    DescriptorList.of(
                                            MemoryKind.HOST, 0, pair.nearMemory.address(), 8192)));
        }
    }

    @Test
    void ranksAsListedOrByCost() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        var c = new TestBackend("C");
        a.estimate = Optional.of(50_000L);
        b.estimate = Optional.of(10_000L);
        c.estimate = Optional.of(10_000L);
        try (var pair = new AgentPair(TransferAgent.Loops.THREADS, Ranking.CHEAPEST, a, c, b)) {
            assertThat(ranking(pair.near.plan(pair.write()))).containsExactly("C", "B", "A");
        }
        try (var pair = new AgentPair(a, c, b)) {
            assertThat(ranking(pair.near.plan(pair.write()))).containsExactly("A", "C", "B");
        }
    }

    @Test
    void estimatesATransferThatDoesNotExistYet() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        a.estimate = Optional.of(123_000L);
        try (var pair = new AgentPair(a, b)) {
            assertThat(
                            pair.near.estimateNanos(
                                    Operation.READ, Optional.of(pair.far.self()), 10, 1 << 20))
                    .as("the cheapest; B is guessed at 100 us and 1 GB/s")
                    .contains(123_000L);
            assertThat(
                            pair.near.estimateNanos(
                                    Operation.READ, Optional.of(new PeerId("nobody", 1)), 10, 64))
                    .isEmpty();
        }
    }

    @Test
    void correctsEstimatesByWhatItMeasures() throws Exception {
        var braggart = new TestBackend("A");
        var modest = new TestBackend("B");
        braggart.estimate = Optional.of(1L); // a thousand times too low, at least
        modest.estimate = Optional.of(600L);
        try (var pair =
                new AgentPair(TransferAgent.Loops.THREADS, Ranking.CHEAPEST, braggart, modest)) {
            assertThat(pair.near.plan(pair.write()).chosen()).isEqualTo("A");
            AgentPair.end(pair.near.submit(pair.write()));

            var plan = pair.near.plan(pair.write());
            assertThat(
                            plan.usable().stream()
                                    .filter(one -> one.backend().equals("A"))
                                    .findFirst()
                                    .orElseThrow()
                                    .correction())
                    .isPresent();
            assertThat(plan.chosen()).isEqualTo("B");
            assertThat(pair.near.plan(pair.read()).chosen())
                    .as("reads were not measured")
                    .isEqualTo("A");
        }
    }

    @Test
    void explainsEachBackendInText() {
        var small = new TestBackend("SMALL", new ArrayList<>(), Map.of("max_bytes", "1KiB"));
        var silent =
                new TestBackend("SILENT", new ArrayList<>(), Map.of("without", List.of("NOTIFY")));
        var aligned = new TestBackend("ALIGNED", new ArrayList<>(), Map.of("alignment", 64));
        try (var pair = new AgentPair(small, silent, aligned, new TestBackend("GOOD"))) {
            var odd = DescriptorList.of(MemoryKind.HOST, 0, pair.nearMemory.address() + 1, 2000);
            var far = DescriptorList.of(MemoryKind.HOST, 0, pair.farMemory.address() + 1, 2000);
            var spec =
                    new TransferRequest(
                            Operation.WRITE,
                            pair.near.prepare(Optional.empty(), odd),
                            pair.near.prepare(Optional.of(pair.far.self()), far),
                            Deadline.in(Duration.ofSeconds(9)));

            assertThat(pair.near.explain(AgentPair.notifying(spec, new byte[0])))
                    .contains("WRITE HOST -> HOST of far, 1 descriptors, 2000 bytes")
                    .contains("1. SMALL: ")
                    .contains("2. GOOD: ")
                    .contains("-  SILENT: has no notifications")
                    .contains(
                            "-  ALIGNED: needs addresses and lengths in multiples of 64, these are multiples of 1");
        }
    }

    @Test
    void goesOnToTheNextBackendWhenOneFails() throws Exception {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        a.failure = Optional.of(LOST);
        try (var pair = new AgentPair(a, b)) {
            pair.nearBytes.fill((byte) 3);
            var transfer = pair.near.submit(pair.write());

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A", "B");
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            assertThat(pair.near.peer("far").orElseThrow().states())
                    .containsEntry("A", PeerState.SUSPECT)
                    .containsEntry("B", PeerState.READY);
        }
    }

    @Test
    void triesTheNextBackendWhenOneDoesNotTakeTheTransfer() throws Exception {
        var a = new TestBackend("A");
        a.refusing = true;
        a.refuseSubmit = ErrorCode.BACKPRESSURE;
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            var transfer = pair.near.submit(pair.write());

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(ranking(pair.near.plan(pair.write())))
                    .as("busy is not ill")
                    .containsExactly("A", "B");
        }
    }

    @Test
    void doesNotRepeatWhatNoRepetitionMends() throws Exception {
        var a = new TestBackend("A");
        a.failure = Optional.of(new Failure(ErrorCode.CORRUPT, "checksum"));
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            var transfer = pair.near.submit(pair.write());

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Failed.class);
            assertThat(transfer.attempts()).containsExactly("A");
        }
    }

    @Test
    void failsWithTheLastFailureWhenAllFail() throws Exception {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        a.failure = Optional.of(LOST);
        b.failure = Optional.of(new Failure(ErrorCode.IO, "broken pipe"));
        try (var pair = new AgentPair(a, b)) {
            assertThat(AgentPair.end(pair.near.submit(pair.write())))
                    .isInstanceOfSatisfying(
                            TransferOutcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().message())
                                            .isEqualTo("broken pipe"));
        }
    }

    @Test
    void waitsUntilTheFailedAttemptHasLetGoOfTheBuffers() throws Exception {
        var a = new TestBackend("A");
        a.failure = Optional.of(LOST);
        a.quiesced = new CompletableFuture<>();
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            var transfer = pair.near.submit(pair.write());
            assertThat(transfer.attempts()).containsExactly("A");
            assertThat(transfer.poll()).isEmpty();

            a.quiesced.complete(null);
            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
        }
    }

    @Test
    void endsAtItsDeadlineWhenTheFailedAttemptNeverLetsGo() throws Exception {
        // On a busy machine it may pass before the attempt has failed.
        for (int millis = 50; !endsAfter(Duration.ofMillis(millis)); millis *= 4) {
            assertThat(millis).as("milliseconds").isLessThan(20_000);
        }
    }

    /// @return false when the deadline passed before the attempt had failed
    private static boolean endsAfter(Duration time) throws Exception {
        var a = new TestBackend("A");
        a.failure = Optional.of(LOST);
        a.quiesced = new CompletableFuture<>();
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            var transfer =
                    pair.near.submit(
                            new TransferRequest(
                                    Operation.WRITE,
                                    pair.local(),
                                    pair.remote(),
                                    Deadline.in(time)));

            var outcome = AgentPair.end(transfer);
            boolean attempted = !transfer.attempts().isEmpty();
            boolean late =
                    attempted
                            ? outcome instanceof TransferOutcome.Failed
                            : outcome instanceof TransferOutcome.TimedOut;
            if (!late) {
                assertThat(outcome).isInstanceOf(TransferOutcome.TimedOut.class);
                assertThat(transfer.attempts()).containsExactly("A");
                assertThat(transfer.quiesced().toCompletableFuture()).isNotDone();
            }
            a.quiesced.complete(null);
            transfer.quiesced().toCompletableFuture().get(40, TimeUnit.SECONDS);
            return !late;
        }
    }

    @Test
    void doesNotStartAfterTheDeadline() throws Exception {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            var transfer =
                    pair.near.submit(
                            new TransferRequest(
                                    Operation.WRITE,
                                    pair.local(),
                                    pair.remote(),
                                    Deadline.in(Duration.ZERO)));

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.TimedOut.class);
            assertThat(transfer.attempts()).isEmpty();
        }
    }

    @Test
    void cancelsBetweenTwoAttempts() throws Exception {
        var a = new TestBackend("A");
        a.failure = Optional.of(LOST);
        a.quiesced = new CompletableFuture<>();
        try (var pair = new AgentPair(a, new TestBackend("B"))) {
            var transfer = pair.near.submit(pair.write());
            transfer.cancel();
            a.quiesced.complete(null);

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Cancelled.class);
            assertThat(transfer.attempts()).containsExactly("A");
            assertThat(transfer.cancel()).isFalse();
        }
    }

    @Test
    void drivesAConfinedBackendOnOneThreadOfItsOwn() throws Exception {
        var confined = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        try (var pair = new AgentPair(confined);
                var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            var start = new CountDownLatch(1);
            var results = new ArrayList<Future<TransferOutcome>>();
            for (int i = 0; i < 8; i++) {
                results.add(
                        threads.submit(() -> {
                            start.await();
                            return AgentPair.end(pair.near.submit(pair.write()));
                        }));
            }
            start.countDown();
            for (var result : results) {
                assertThat(result.get(20, TimeUnit.SECONDS))
                        .isInstanceOf(TransferOutcome.Done.class);
            }
        }
        assertThat(Set.copyOf(confined.threads)).as("one per agent").hasSize(2);
        assertThat(confined.threads)
                .allMatch(thread -> thread.getName().startsWith("kvferry-agent-"));
        assertThat(Thread.getAllStackTraces().keySet())
                .as("ended with the agent")
                .doesNotContainAnyElementsOf(confined.threads);
    }

    @Test
    void stepsAConfinedBackendOnlyWhenTheCallerPolls() {
        var confined = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        try (var pair = new AgentPair(TransferAgent.Loops.CALLER, Ranking.LISTED, confined)) {
            pair.nearBytes.fill((byte) 6);
            var transfer = pair.near.submit(pair.write());
            assertThat(transfer.poll()).isEmpty();

            assertThat(pair.drive(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
        }
        assertThat(confined.threads).containsOnly(Thread.currentThread());
    }

    @Test
    void keepsCallsOfOtherThreadsForThePollingOne() throws Exception {
        var confined = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        try (var pair = new AgentPair(TransferAgent.Loops.CALLER, Ranking.LISTED, confined);
                var other = Executors.newSingleThreadExecutor()) {
            var list = other.submit(pair::local);
            while (!list.isDone()) {
                pair.near.poll();
            }
            assertThat(((AgentPrepared) list.get()).entries()).containsKey("A");
        }
        assertThat(confined.threads).containsOnly(Thread.currentThread());
    }

    @Test
    void pollDoesNothingWhereTheAgentDrivesItself() {
        try (var pair =
                new AgentPair(
                        new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined")))) {
            assertThat(pair.near.poll()).isZero();
            assertThat(pair.near.capabilities().threading())
                    .isEqualTo(BackendCapabilities.Threading.CONCURRENT);
        }
    }

    @Test
    void throwsWhenNoBackendTookTheTransfer() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        a.refusing = true;
        b.refusing = true;
        b.refuseSubmit = ErrorCode.BACKPRESSURE;
        try (var pair = new AgentPair(a, b)) {
            refused(ErrorCode.BACKPRESSURE, () -> pair.near.submit(pair.write()));
        }
    }

    @Test
    void waitsForRoomOnTheLoopOfAConfinedBackend() throws Exception {
        var a =
                new TestBackend(
                        "A", new ArrayList<>(), Map.of("threading", "confined", "queue", 2));
        try (var pair = new AgentPair(a)) {
            var request = pair.write();
            a.refusing = true;
            a.refuseSubmit = ErrorCode.BACKPRESSURE;
            var waiting = new ArrayList<Transfer>();
            for (int i = 0; i < 100; i++) {
                waiting.add(pair.near.submit(request));
            }
            var late =
                    pair.near.submit(
                            new TransferRequest(
                                    Operation.WRITE,
                                    request.local(),
                                    request.remote(),
                                    Deadline.in(Duration.ofMillis(20))));
            assertThat(AgentPair.end(late))
                    .as("while others wait before it")
                    .isInstanceOf(TransferOutcome.TimedOut.class);
            var cancelled = waiting.removeLast();
            assertThat(cancelled.cancel()).isTrue();
            assertThat(AgentPair.end(cancelled)).isInstanceOf(TransferOutcome.Cancelled.class);

            a.refusing = false;
            for (var transfer : waiting) {
                assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            }
        }
    }

    @Test
    void cutsARangeThatABackendDoesNotTakeAtOnce() throws Exception {
        var small = new TestBackend("A", new ArrayList<>(), Map.of("max_bytes", 1000));
        try (var pair = new AgentPair(small)) {
            for (int i = 0; i < AgentPair.BYTES; i++) {
                pair.nearBytes.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 37));
            }
            assertThat(AgentPair.end(pair.near.submit(pair.write())))
                    .isInstanceOfSatisfying(
                            TransferOutcome.Done.class,
                            done -> assertThat(done.bytes()).isEqualTo(AgentPair.BYTES));
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
        }
    }

    @Test
    void keepsClosedListsForTheNextAttemptAndTheNextPiece() throws Exception {
        var a = new TestBackend("A");
        var b = new TestBackend("B", new ArrayList<>(), Map.of("max_bytes", "256"));
        a.failure = Optional.of(LOST);
        a.quiesced = new CompletableFuture<>();
        try (var pair = new AgentPair(a, b)) {
            pair.nearBytes.fill((byte) 11);
            var request = pair.write();
            var transfer = pair.near.submit(request);
            request.local().close();
            request.remote().close();
            a.quiesced.complete(null);

            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(transfer.attempts()).containsExactly("A", "B");
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
        }
    }

    @Test
    void freesClosedListsOnEachBackendOnceTheTransferHasEnded() throws Exception {
        var confined = new TestBackend("A", new ArrayList<>(), Map.of("threading", "confined"));
        var concurrent = new TestBackend("B");
        try (var pair = new AgentPair(confined, concurrent)) {
            var request = pair.write();
            assertThat(confined.lists).hasValue(2);
            assertThat(concurrent.lists).hasValue(2);
            var transfer = pair.near.submit(request);
            request.local().close();
            request.remote().close();
            AgentPair.end(transfer);

            var limit = Deadline.in(Duration.ofSeconds(20));
            while (confined.lists.get() + concurrent.lists.get() > 0 && !limit.passed()) {
                Thread.onSpinWait();
            }
            assertThat(confined.lists).hasValue(0);
            assertThat(concurrent.lists).hasValue(0);
        }
    }

    @Test
    void aPieceIsInFlightThoughItsListsCannotBeClosed() throws Exception {
        var small = new TestBackend("A", new ArrayList<>(), Map.of("max_bytes", 1000));
        try (var pair = new AgentPair(small)) {
            pair.nearBytes.fill((byte) 11);
            small.refuseListClose = true;
            var transfer = pair.near.submit(pair.write());
            assertThat(AgentPair.end(transfer)).isInstanceOf(TransferOutcome.Done.class);
            assertThat(pair.farBytes.mismatch(pair.nearBytes)).isEqualTo(-1);
            small.refuseListClose = false;
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"confined", "concurrent"})
    void aBackendThatHasNoMemoryFailsTheTransferAndIsUsedAgain(String threading) throws Exception {
        var backend = new TestBackend("A", new ArrayList<>(), Map.of("threading", threading));
        try (var pair = new AgentPair(backend)) {
            backend.chaos = () -> TestBackend.Fault.NO_MEMORY;
            try {
                assertThat(AgentPair.end(pair.near.submit(pair.write())))
                        .isInstanceOf(TransferOutcome.Failed.class);
            } catch (KvFerryException e) { // a loop may be so fast that submit sees the end
                assertThat(e).hasMessageContaining("thrown by the test");
            }
            backend.chaos = () -> TestBackend.Fault.NONE;
            assertThat(AgentPair.end(pair.near.submit(pair.write())))
                    .isInstanceOf(TransferOutcome.Done.class);
        }
    }

    @Test
    void providesMemoryOfTheFirstBackendThatHasSome() {
        var a = new TestBackend("A");
        var b = new TestBackend("B");
        b.provides = true;
        try (var pair = new AgentPair(a, b)) {
            var memory = pair.near.provideMemory(8192).orElseThrow();
            assertThat(memory.range().length()).isEqualTo(8192);
            memory.close();
            b.provides = false;
            assertThat(pair.near.provideMemory(8192)).isEmpty();
        }
    }

    @Test
    void takesListsOfItsOwnOnly() {
        try (var pair = new AgentPair(new TestBackend("A"))) {
            var foreign = pair.far.prepare(Optional.empty(), DescriptorList.of(pair.farMemory));
            refused(
                    ErrorCode.INVALID_REQUEST,
                    () ->
                            pair.near.submit(
                                    new TransferRequest(
                                            Operation.WRITE,
                                            foreign,
                                            pair.remote(),
                                            Deadline.in(Duration.ofSeconds(9)))));
        }
    }

    @Test
    void closesBackendsInReverseOrderAndThenRefuses() {
        var order = new ArrayList<String>();
        var a = new TestBackend("A", order, Map.of());
        var b = new TestBackend("B", order, Map.of());
        var pair = new AgentPair(a, b);
        var spec = pair.write();
        pair.near.close();
        pair.near.close();

        assertThat(order).containsExactly("B", "A");
        refused(ErrorCode.CLOSED, () -> pair.near.submit(spec));
        refused(ErrorCode.CLOSED, pair.near::localMetadata);
        pair.close();
        assertThat(a.open.get()).isZero();
    }

    /// As the SPI says of each backend: something may still touch memory after a close that failed.
    @ParameterizedTest
    @ValueSource(strings = {"concurrent", "confined"})
    void aCloseThatFailedIsTriedAgain(String threading) {
        var order = new ArrayList<String>();
        var a = new TestBackend("A", order, Map.of("threading", threading));
        var b = new TestBackend("B", order, Map.of("threading", threading));
        var pair = new AgentPair(a, b);
        b.failingCloses.set(2);
        refused(ErrorCode.TIMEOUT, pair.near::close);
        refused(ErrorCode.TIMEOUT, pair.near::close);
        assertThat(order).containsExactly("A");
        pair.near.close();
        pair.near.close();
        assertThat(order).containsExactly("A", "B");
        pair.close();
        assertThat(b.open.get()).isZero();
    }
}
