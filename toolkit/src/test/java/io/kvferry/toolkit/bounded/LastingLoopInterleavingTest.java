// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.util.Random;

/// A loop and a repeated task that throw at random points and are interrupted and closed at random
/// times, in the loop and in the pause. All steps run on one thread: interrupt and close are flags
/// that the loop's thread finds. The oracle: after each throw the loop is restarted after at most
/// 10 ms, until it returns; it is not restarted after that and never nested; an interrupt shortens
/// one pause and remains set afterwards, unless the loop consumed it.
class LastingLoopInterleavingTest {
    private static final int STEPS = 300;

    /// One in so many steps each.
    private static final int THROWS = 3;

    private static final int INTERRUPTS = 20;
    private static final int CLOSES = 150;

    @AfterEach
    void leaveNoInterruptBehind() {
        var _ = Thread.interrupted();
    }

    @Test
    void keepsItsInvariantsInSomeThousandHistories() {
        for (long seed = 0; seed < 3000; seed++) {
            new LoopHistory(seed).play();
            new TaskHistory(seed).play();
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void keepsItsInvariantsInManyHistories() {
        long first = Long.getLong("kvferry.soak.first_seed", 3000);
        for (long seed = first;
                seed < first + Long.getLong("kvferry.soak.seeds", 500_000);
                seed++) {
            new LoopHistory(seed).play();
            new TaskHistory(seed).play();
        }
    }

    /// What happens to both. What a check finds is thrown at the end: a loop that lasts would catch
    /// it.
    private abstract static class History {
        final Random random;
        final long seed;
        int step;
        int interrupts;
        boolean interrupted;
        boolean closed;
        private int within;
        private String broken = "";

        History(long seed) {
            this.seed = seed;
            this.random = new Random(seed);
        }

        void check(boolean holds, String what) {
            if (!holds && broken.isEmpty()) {
                broken = "seed %d, step %d: %s".formatted(seed, step, what);
            }
        }

        void end() {
            takeInterrupt();
            assertThat(broken).isEmpty();
        }

        boolean oneIn(int steps) {
            return random.nextInt(steps) == 0;
        }

        void enter() {
            check(within == 0, "run while it runs");
            within++;
        }

        void leave() {
            within--;
        }

        /// Others may interrupt the thread or close its owner at any moment.
        void disturb() {
            step++;
            check(
                    Thread.currentThread().isInterrupted() == interrupted,
                    "the thread should be interrupted: " + interrupted);
            if (oneIn(INTERRUPTS)) {
                interrupts += interrupted ? 0 : 1;
                interrupted = true;
                Thread.currentThread().interrupt();
            }
            closed |= oneIn(CLOSES) || step >= STEPS;
        }

        /// As a wait does that is interrupted.
        void takeInterrupt() {
            check(
                    Thread.interrupted() == interrupted,
                    "the thread should have been interrupted: " + interrupted);
            interrupted = false;
        }

        void throwSomething() {
            switch (random.nextInt(4)) {
                case 0 -> throw new OutOfMemoryError("no memory, says the test");
                case 1 -> throw new StackOverflowError("says the test");
                case 2 -> throw new NoClassDefFoundError("says the test");
                default -> throw new IllegalStateException("says the test");
            }
        }
    }

    private static final class LoopHistory extends History {
        private int begun;
        private int thrown;
        private int pauses;
        private int cutShort;
        private boolean returned;

        LoopHistory(long seed) {
            super(seed);
        }

        void play() {
            new LastingLoop(this::loop, this::park).run();
            check(returned, "it ended before the loop returned");
            check(begun == thrown + 1, "run " + begun + " times, thrown " + thrown);
            check(pauses == thrown, pauses + " pauses, thrown " + thrown);
            end();
        }

        private void loop() {
            enter();
            check(!returned, "run again after it returned");
            check(pauses == begun, "run again without a pause");
            begun++;
            try {
                while (!closed) {
                    disturb();
                    if (oneIn(THROWS)) {
                        thrown++;
                        throwSomething();
                    }
                    if (oneIn(THROWS)) {
                        takeInterrupt();
                    }
                }
                returned = true;
            } finally {
                leave();
            }
        }

        /// As parkNanos: a thread that is interrupted does not park, and an interrupt ends it.
        private void park(long nanos) {
            pauses++;
            check(nanos > 0 && nanos <= LastingLoop.PAUSE_NANOS, "a pause of " + nanos);
            if (Thread.currentThread().isInterrupted()) {
                cutShort++;
            } else {
                boolean putAside = interrupted;
                interrupted = false;
                disturb();
                cutShort += interrupted ? 1 : 0;
                interrupted |= putAside;
            }
            check(cutShort <= interrupts, cutShort + " short pauses, interrupts " + interrupts);
        }
    }

    private static final class TaskHistory extends History {
        TaskHistory(long seed) {
            super(seed);
        }

        /// As an executor does that drops what throws, and asks before each time whether it goes
        /// on.
        void play() {
            Runnable task = LastingLoop.repeated(this::task);
            while (!closed) {
                int before = step;
                task.run();
                check(step == before + 1, "each time it runs once");
            }
            end();
        }

        private void task() {
            enter();
            try {
                disturb();
                if (oneIn(THROWS)) {
                    throwSomething();
                }
                if (oneIn(THROWS)) {
                    takeInterrupt();
                }
            } finally {
                leave();
            }
        }
    }
}
