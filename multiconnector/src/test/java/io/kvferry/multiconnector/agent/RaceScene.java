// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Two agents and their memory, cut into lanes. A transfer has a lane of both sides for itself; a
/// lane that no transfer has holds a pattern, which must stay as it is.
final class RaceScene {
    private static final int LANES = 8;
    private static final int RANGES = 8;
    private static final int RANGE = 32;
    private static final int LANE = RANGES * RANGE;
    private static final long LIMIT_SECONDS = 30;

    private final TransferAgent near;
    private final TransferAgent far;
    private final AgentPair.Ear ear;
    private final MemorySegment nearBytes;
    private final MemorySegment farBytes;
    private final AtomicInteger numbers = new AtomicInteger();

    RaceScene(Arena arena, TransferAgent near, TransferAgent far, AgentPair.Ear ear, int threads) {
        this.near = near;
        this.far = far;
        this.ear = ear;
        this.nearBytes = arena.allocate((long) threads * LANES * LANE, 64);
        this.farBytes = arena.allocate((long) threads * LANES * LANE, 64);
        near.register(new MemoryRange.Host(nearBytes));
        far.register(new MemoryRange.Host(farBytes));
        AgentPair.meet(near, far);
        AgentPair.meet(far, near);
    }

    /// The lanes of one thread.
    Lanes lanes(int thread, SplittableRandom random) {
        return new Lanes(thread * LANES, random);
    }

    /// @param deaf the far agent was closed in between, so that it need not have got everything
    void checkNotifications(List<Flight> flights, boolean deaf, String round) {
        var expected = flights.stream().filter(Flight::announced).map(one -> one.number).toList();
        var seen = new HashMap<Integer, Integer>();
        var limit = Deadline.in(Duration.ofSeconds(LIMIT_SECONDS));
        do {
            for (var one = ear.notes.poll(); one != null; one = ear.notes.poll()) {
                seen.merge(ByteBuffer.wrap(one.bytes()).getInt(), 1, Integer::sum);
            }
        } while (!deaf && !limit.passed() && !seen.keySet().containsAll(expected));
        assertThat(seen.values()).as("%s: once", round).allMatch(count -> count == 1);
        assertThat(deaf ? List.of() : expected).as(round).allMatch(seen::containsKey);
    }

    /// One transfer, and what was seen of it.
    static final class Flight {
        private final int number;
        private final boolean notifies;
        private final Transfer transfer;
        private final AtomicInteger ends = new AtomicInteger();
        private final AtomicInteger quiets = new AtomicInteger();
        private volatile boolean promised;

        private Flight(int number, boolean notifies, Transfer transfer) {
            this.number = number;
            this.notifies = notifies;
            this.transfer = transfer;
            transfer.completion().thenRun(ends::incrementAndGet);
            transfer.quiesced()
                    .thenRun(() -> quiets.addAndGet(transfer.poll().isPresent() ? 1 : 1000));
        }

        private void cancel() {
            promised |= transfer.cancel();
        }

        private boolean announced() {
            return notifies && transfer.poll().orElseThrow() instanceof TransferOutcome.Done;
        }

        /// Waits until it is over.
        TransferOutcome check(String where) throws Exception {
            var what = where + transfer.attempts();
            assertThat(
                            transfer.quiesced()
                                    .thenApply(_ -> true)
                                    .toCompletableFuture()
                                    .completeOnTimeout(false, LIMIT_SECONDS, TimeUnit.SECONDS)
                                    .get())
                    .as("%s has let go", what)
                    .isTrue();
            var end = transfer.poll().orElseThrow();
            // Callbacks run one after the other; these may be behind the one that told us.
            var limit = Deadline.in(Duration.ofSeconds(LIMIT_SECONDS));
            while ((ends.get() == 0 || quiets.get() == 0) && !limit.passed()) {
                Thread.onSpinWait();
            }
            assertThat(ends).as(what).hasValue(1);
            assertThat(quiets).as("%s let go after its end", what).hasValue(1);
            if (promised) {
                assertThat(end).as(what).isInstanceOf(TransferOutcome.Cancelled.class);
            }
            return end;
        }
    }

    /// What one thread does.
    final class Lanes {
        private final int first;
        private final SplittableRandom random;
        private final List<Flight> all = new ArrayList<>();
        private final @Nullable Flight[] flying = new Flight[LANES];
        private final byte[] pattern = new byte[LANES];

        /// What happened last on each lane, for the message of a failure.
        private final String[] last = new String[LANES];

        private Lanes(int first, SplittableRandom random) {
            this.first = first;
            this.random = random;
        }

        List<Flight> fly(int count) throws Exception {
            for (int i = 0; i < count; ) {
                int lane = random.nextInt(LANES);
                if (flying[lane] != null) {
                    land(lane);
                } else {
                    start(lane);
                    i++;
                }
            }
            for (int lane = 0; lane < LANES; lane++) {
                if (flying[lane] != null) {
                    land(lane);
                }
            }
            for (int lane = 0; lane < LANES; lane++) {
                checkUntouched(lane);
            }
            return all;
        }

        private MemorySegment part(MemorySegment whole, int lane) {
            return whole.asSlice((long) (first + lane) * LANE, LANE);
        }

        private void land(int lane) throws Exception {
            var flight = Objects.requireNonNull(flying[lane]);
            var end = flight.check("");
            last[lane] = end + " after " + flight.transfer.attempts();
            flying[lane] = null;
            var here = part(nearBytes, lane);
            var there = part(farBytes, lane);
            if (end instanceof TransferOutcome.Done) {
                assertThat(here.mismatch(there)).isEqualTo(-1);
            }
            pattern[lane] += 2;
            here.fill(pattern[lane]);
            there.fill((byte) (pattern[lane] + 1));
        }

        private void checkUntouched(int lane) {
            if (pattern[lane] != 0) {
                assertThat(bytes(nearBytes, lane))
                        .as("near, last: %s", last[lane])
                        .containsOnly(pattern[lane]);
                assertThat(bytes(farBytes, lane))
                        .as("far, last: %s", last[lane])
                        .containsOnly(pattern[lane] + 1);
            }
        }

        private byte[] bytes(MemorySegment whole, int lane) {
            return part(whole, lane).toArray(ValueLayout.JAVA_BYTE);
        }

        private void start(int lane) {
            checkUntouched(lane);
            var operation = random.nextBoolean() ? Operation.READ : Operation.WRITE;
            int number = numbers.incrementAndGet();
            boolean notifies = random.nextBoolean();
            Transfer transfer;
            try {
                var local = near.prepare(Optional.empty(), ranges(nearBytes, lane));
                var remote = near.prepare(Optional.of(far.self()), ranges(farBytes, lane));
                var spec = new TransferRequest(operation, local, remote, deadline());
                var news = ByteBuffer.allocate(Integer.BYTES).putInt(number).array();
                transfer = near.submit(notifies ? AgentPair.notifying(spec, news) : spec);
                if (random.nextBoolean()) { // the transfer holds what it needs
                    local.close();
                    remote.close();
                }
            } catch (KvFerryException e) {
                last[lane] += ", then refused: " + e.getMessage();
                return; // after a blow
            }
            var flight = new Flight(number, notifies, transfer);
            flying[lane] = flight;
            all.add(flight);
            maybeCancel(flight);
        }

        private DescriptorList ranges(MemorySegment whole, int lane) {
            var list = DescriptorList.builder(MemoryKind.HOST);
            long at = part(whole, lane).address();
            for (int i = 0; i < RANGES; i++) {
                list.add(0, at + i * RANGE, RANGE);
            }
            return list.build();
        }

        private Deadline deadline() {
            return switch (random.nextInt(12)) {
                case 0 -> Deadline.in(Duration.ZERO);
                case 1, 2 -> Deadline.in(Duration.ofNanos(random.nextInt(1_000_000)));
                default -> Deadline.in(Duration.ofSeconds(20));
            };
        }

        private void maybeCancel(Flight flight) {
            switch (random.nextInt(6)) {
                case 0 -> flight.cancel();
                case 1 -> {
                    long pause = random.nextInt(300_000);
                    Thread.startVirtualThread(() -> {
                        LockSupport.parkNanos(pause);
                        flight.cancel();
                    });
                }
                default -> {}
            }
        }
    }
}
