// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Whole tensors between two ranks over the C double of NCCL: their order, calls that do not
/// return, and peers that are lost. Whatever happens, each call ends with a code and nothing stays
/// in use.
@Timeout(300)
class TensorLanesTest {
    private static final Duration HASTY = Duration.ofSeconds(1);
    private static final long ROOM = 1 << 20;

    private final NcclDouble nccl = NcclDouble.load();
    private final List<TensorLanes> opened = new ArrayList<>();

    @BeforeEach
    void reset() {
        nccl.reset();
    }

    @AfterEach
    void nothingStays() {
        opened.forEach(TensorLanes::close);
        nccl.assertClean();
    }

    private TensorLanes lanes(GpuDriver driver, Duration setUp, Duration turn) {
        var made =
                new TensorLanes(
                        "lanes-" + opened.size(),
                        nccl.library(),
                        driver,
                        new TensorLanes.Limits(setUp, turn, ROOM, 0));
        opened.add(made);
        return made;
    }

    private TensorLanes lanes() {
        return lanes(nccl.driver(), SOON, SOON);
    }

    /// The two ends of one communicator.
    private record Pair(TensorLane a, TensorLane b) implements AutoCloseable {
        static Pair of(TensorLanes from, TensorLanes to) {
            var id = from.uniqueId();
            var pair = new Pair(from.open("b", id, 0), to.open("a", id, 1));
            pair.a.awaitReady();
            pair.b.awaitReady();
            return pair;
        }

        /// Moves random bytes, and verifies them.
        void move(boolean forth, int bytes, long seed) {
            var from = forth ? a : b;
            var to = forth ? b : a;
            var data = new byte[bytes];
            new Random(seed).nextBytes(data);
            MemorySegment.copy(data, 0, from.buffer(bytes), ValueLayout.JAVA_BYTE, 0, bytes);
            var there = to.buffer(bytes);
            var sending =
                    CompletableFuture.runAsync(() -> from.send(bytes), Thread::startVirtualThread);
            to.receive(bytes);
            join(sending);
            assertThat(there.asSlice(0, bytes).toArray(ValueLayout.JAVA_BYTE)).isEqualTo(data);
        }

        @Override
        public void close() {
            a.close();
            b.close();
        }
    }

    @Test
    void lanesThatAreNotOpenedLeaveNoThread() {
        var tooLong = Duration.ofSeconds(Long.MAX_VALUE);
        var limits = new TensorLanes.Limits(SOON, tooLong, ROOM, 0);
        assertThatThrownBy(
                        () -> new TensorLanes("not-opened", nccl.library(), nccl.driver(), limits))
                .isInstanceOf(ArithmeticException.class);
        assertThat(Thread.getAllStackTraces().keySet())
                .extracting(Thread::getName)
                .noneMatch(name -> name.startsWith("not-opened"));
    }

    private static CompletableFuture<Void> later(Runnable call) {
        return CompletableFuture.runAsync(call, Thread::startVirtualThread);
    }

    private static void join(CompletableFuture<Void> call) {
        call.orTimeout(2 * SOON.toSeconds(), TimeUnit.SECONDS).join();
    }

    private static void assertEnds(CompletableFuture<Void> call, ErrorCode code) {
        assertThatThrownBy(() -> call.get(SOON.toSeconds(), TimeUnit.SECONDS))
                .isInstanceOf(ExecutionException.class)
                .cause()
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).as(e.getMessage()).isEqualTo(code));
    }

    private static void assertEnds(ErrorCode code, Runnable call) {
        assertEnds(later(call), code);
    }

    private static void awaitTrouble(TensorLanes lanes, boolean present) {
        var limit = Deadline.in(SOON);
        while (lanes.trouble().isPresent() != present) {
            assertThat(limit.passed()).as("trouble %s", lanes.trouble()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Sizes differ from tensor to tensor: one that overtook another would be found by its size.
    @Test
    void tensorsArriveInTheirOrderInBothDirectionsWhileOthersMove() {
        nccl.set(Knob.INIT_POLLS, 3);
        nccl.set(Knob.GROUP_POLLS, 2);
        nccl.set(Knob.DELAY_US, 300);
        var from = lanes();
        var to = lanes();
        var all = new ArrayList<CompletableFuture<Void>>();
        for (int peer = 0; peer < 4; peer++) {
            long seed = 1000L * peer;
            all.add(
                    later(() -> {
                        try (var pair = Pair.of(from, to)) {
                            var random = new Random(seed);
                            for (int i = 0; i < 40; i++) {
                                pair.move(
                                        random.nextBoolean(), 1 + random.nextInt(60_000), seed + i);
                            }
                        }
                    }));
        }
        all.forEach(TensorLanesTest::join);
        assertThat(nccl.count(Count.SENDS)).isEqualTo(160);
        assertThat(nccl.count(Count.RECEIVES)).isEqualTo(160);
    }

    @Test
    void aTensorThatNeverArrivesEndsItsLaneInTimeAndNoOther() {
        var hasty = lanes(nccl.driver(), SOON, HASTY);
        var to = lanes();
        try (var pair = workingInTheEnd(hasty, to)) {
            var _ = pair.a.buffer(1000);
            assertEnds(ErrorCode.TIMEOUT, () -> pair.a.receive(1000)); // nobody sends
            assertEnds(ErrorCode.TIMEOUT, () -> pair.a.buffer(1000));
            try (var other = Pair.of(to, lanes())) {
                other.move(true, 1000, 1);
            }
        }
    }

    @Test
    void aGroupThatDoesNotReturnIsAbortedAndTheNextLaneWorks() {
        var a = lanes(nccl.driver(), SOON, HASTY);
        var b = lanes();
        try (var pair = workingInTheEnd(a, b)) {
            nccl.set(Knob.HANG_GROUP, 1);
            var _ = pair.a.buffer(1000);
            assertEnds(ErrorCode.TIMEOUT, () -> pair.a.send(1000));
            nccl.set(Knob.HANG_GROUP, 0);
        }
        awaitTrouble(a, false);
        assertThat(nccl.count(Count.ABORTS)).isPositive();
        workingInTheEnd(a, b).close();
    }

    /// The limits of one side are short for a busy machine.
    private static Pair workingInTheEnd(TensorLanes hasty, TensorLanes other) {
        var limit = Deadline.in(SOON);
        while (true) {
            @Nullable Pair made = null;
            try {
                made = Pair.of(hasty, other);
                made.move(true, 1000, 2);
                return made;
            } catch (KvFerryException | CompletionException e) {
                assertThat(limit.passed()).as("%s", e.toString()).isFalse();
                if (made != null) {
                    made.close();
                }
            }
        }
    }

    @Test
    void whileTheDriverHangsEveryCallEndsAndAfterwardsNewLanesWork() {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        var a = lanes(hanging.driver(), HASTY, HASTY);
        var b = lanes();
        try (var inCall = workingInTheEnd(a, b);
                var beside = workingInTheEnd(a, b)) {
            hanging.hang();
            var sending = later(() -> inCall.a.send(1000));
            hanging.awaitHang();
            awaitTrouble(a, true);
            assertEnds(sending, ErrorCode.TIMEOUT);
            assertEnds(ErrorCode.TIMEOUT, () -> beside.a.buffer(1000));
            assertEnds(ErrorCode.TIMEOUT, () -> beside.a.receive(1000));
            assertEnds(ErrorCode.TIMEOUT, a::uniqueId);
        } finally {
            hanging.release();
        }
        awaitTrouble(a, false);
        workingInTheEnd(a, b).close();
    }

    @Test
    void aPeerThatIsLostEndsWhatRunsAtOnceWithItsReason() {
        var a = lanes();
        var b = lanes();
        try (var pair = Pair.of(a, b);
                var other = Pair.of(a, b)) {
            var _ = pair.b.buffer(1000);
            var receiving = later(() -> pair.b.receive(1000));
            pair.b.abandon(new Failure(ErrorCode.PEER_LOST, "its connection is over"));
            assertEnds(receiving, ErrorCode.PEER_LOST);
            assertEnds(ErrorCode.PEER_LOST, () -> pair.b.send(1));
            other.move(false, 1000, 3);
        }
    }

    @Test
    void anErrorOfNcclEndsItsLaneWithItsCode() {
        var a = lanes();
        var b = lanes();
        try (var pair = Pair.of(a, b)) {
            nccl.set(Knob.FAIL_RANK, 1);
            nccl.set(Knob.FAIL_GROUP, 1);
            var _ = pair.a.buffer(1000);
            assertEnds(ErrorCode.IO, () -> pair.a.send(1000));
            nccl.set(Knob.FAIL_GROUP, 0);
        }
        try (var pair = Pair.of(a, b)) {
            pair.move(true, 1000, 4);
        }
    }

    @Test
    void aPeerThatDiesInTheInitializationIsGivenUpInTimeAndNoOther() {
        var hasty = lanes(nccl.driver(), HASTY, SOON);
        var id = lanes().uniqueId(); // its limits are not short
        try (var alone = hasty.open("dead", id, 0)) {
            assertEnds(ErrorCode.TIMEOUT, alone::awaitReady);
        }
        try (var pair = Pair.of(lanes(), lanes())) {
            pair.move(true, 1000, 5);
        }
    }

    @Test
    void buffersThatWouldTakeMoreThanTheRoomAreRefusedAndTheLaneGoesOn() {
        var a = lanes();
        var b = lanes();
        try (var pair = Pair.of(a, b);
                var other = Pair.of(a, b)) {
            var _ = other.a.buffer(ROOM / 2);
            assertEnds(ErrorCode.NO_MEMORY, () -> pair.a.buffer(ROOM));
            pair.move(true, 1000, 6);
        }
    }

    @Test
    void closingEndsWhatRuns() {
        var a = lanes();
        var b = lanes();
        try (var pair = Pair.of(a, b)) {
            var _ = pair.a.buffer(1000);
            var receiving = later(() -> pair.a.receive(1000));
            var limit = Deadline.in(SOON);
            while (nccl.count(Count.RECEIVES) == 0) {
                assertThat(limit.passed()).as("the receive never began").isFalse();
                LockSupport.parkNanos(1_000_000);
            }
            var closing = later(a::close);
            assertEnds(receiving, ErrorCode.CLOSED);
            pair.a.close(); // for which closing waits
            join(closing);
            assertEnds(ErrorCode.CLOSED, a::uniqueId);
        }
    }

    /// What neither NCCL nor the driver says in codes ends the lane too, and no other one.
    @Test
    void aDriverThatThrowsSomethingElseEndsItsLaneAtOnce() {
        var broken = new AtomicBoolean(true);
        var from = lanes(throwing(nccl.driver(), broken), SOON, SOON);
        var to = lanes();
        var id = from.uniqueId();
        try (var lane = from.open("b", id, 0)) {
            assertEnds(ErrorCode.INTERNAL, lane::awaitReady);
        }
        try (var pair = Pair.of(from, to)) {
            pair.move(true, 100, 1);
        }
    }

    private static GpuDriver throwing(GpuDriver real, AtomicBoolean broken) {
        return (GpuDriver)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("openStream") && broken.getAndSet(false)) {
                                throw new UnsatisfiedLinkError("says the test");
                            }
                            return method.invoke(real, arguments);
                        });
    }
}
