// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

class OwnerLoopTest {
    private static final int POSTS = 200;

    /// A post that the backend takes one of in each round; a look at one takes a while.
    private static final class SlowToLookAt implements OwnerLoop.Post {
        private final AtomicInteger room;
        private final AtomicInteger looks;

        SlowToLookAt(AtomicInteger room, AtomicInteger looks) {
            this.room = room;
            this.looks = looks;
        }

        @Override
        public boolean tryNow(boolean canWait) {
            return room.getAndUpdate(left -> Math.max(0, left - 1)) > 0;
        }

        @Override
        public boolean isOver() {
            looks.incrementAndGet();
            LockSupport.parkNanos(200_000);
            return false;
        }
    }

    /// A native backend needs a list freed before its memory is deregistered.
    @Test
    void freesWhatWasReleasedBeforeTheCallsThatFollow() throws Exception {
        var seen = new ArrayList<String>();
        try (var loop = OwnerLoop.ofCaller("loop", Duration.ofSeconds(20))) {
            var other =
                    Thread.ofPlatform()
                            .start(() -> {
                                loop.release(() -> seen.add("list"));
                                loop.execute(() -> seen.add("memory"));
                                loop.release(() -> seen.add("another list"));
                            });
            other.join();
            assertThat(seen).isEmpty();

            assertThat(loop.poll()).isEqualTo(3);
            assertThat(seen).containsExactly("list", "another list", "memory");
        }
    }

    @Test
    void freesNothingOfAClosedBackend() throws Exception {
        var seen = new ArrayList<String>();
        var loop = OwnerLoop.ofCaller("loop", Duration.ofSeconds(20));
        Thread.ofPlatform().start(() -> loop.release(() -> seen.add("early"))).join();
        loop.close();
        Thread.ofPlatform().start(() -> loop.release(() -> seen.add("late"))).join();

        loop.poll();
        assertThat(seen).isEmpty();
    }

    private static final Duration LONG = Duration.ofSeconds(20);

    @Test
    void anErrorReachesTheCallerAndTheLoopGoesOn() {
        try (var loop = OwnerLoop.threaded("loop", LONG)) {
            assertThatThrownBy(() ->
                            loop.call(
                                    "work",
                                    () -> {
                                        throw new OutOfMemoryError("thrown by the test");
                                    }))
                    .hasMessageContaining("thrown by the test");
            loop.execute(() -> {
                throw new OutOfMemoryError("thrown by the test");
            });
            loop.post(
                    new OwnerLoop.Post() {
                        @Override
                        public boolean tryNow(boolean canWait) {
                            throw new OutOfMemoryError("thrown by the test");
                        }

                        @Override
                        public boolean isOver() {
                            return false;
                        }
                    });
            assertThat(loop.call("work", () -> 7)).isEqualTo(7);
        }
    }

    /// Its caller was interrupted, or waited for the call limit.
    @Test
    void nothingIsMadeForACallerThatHasGivenUp() throws Exception {
        var made = new AtomicInteger();
        try (var loop = OwnerLoop.ofCaller("loop", LONG)) {
            var caller =
                    Thread.ofPlatform()
                            .unstarted(() -> loop.make("work", made::incrementAndGet, _ -> {}));
            caller.start();
            caller.interrupt();
            caller.join();
            loop.poll();
        }
        assertThat(made).hasValue(0);
    }

    @Test
    void whatWasMadeForACallerThatGaveUpMeanwhileIsGivenBack() throws Exception {
        var begun = new CountDownLatch(1);
        var goOn = new CountDownLatch(1);
        var givenBack = new CompletableFuture<String>();
        try (var loop = OwnerLoop.threaded("loop", LONG)) {
            var caller =
                    Thread.ofPlatform()
                            .start(() ->
                                    loop.make(
                                            "work",
                                            () -> {
                                                begun.countDown();
                                                try {
                                                    goOn.await();
                                                } catch (InterruptedException e) {
                                                    throw new AssertionError(e);
                                                }
                                                return "memory";
                                            },
                                            givenBack::complete));
            begun.await();
            caller.interrupt();
            caller.join();
            goOn.countDown();
            assertThat(givenBack.get(20, TimeUnit.SECONDS)).isEqualTo("memory");
        }
    }

    /// A registration is given back also when the thread that does so is interrupted.
    @Test
    void aCallIsMadeThoughItsCallerHasGivenUp() throws Exception {
        var made = new AtomicInteger();
        try (var loop = OwnerLoop.ofCaller("loop", LONG)) {
            var caller =
                    Thread.ofPlatform().unstarted(() -> loop.call("work", made::incrementAndGet));
            caller.start();
            caller.interrupt();
            caller.join();
            loop.poll();
        }
        assertThat(made).hasValue(1);
    }

    /// Checking for cancelled posts takes longer the more posts are waiting. On a busy host the
    /// loop did little else, and thousands of transfers timed out.
    @Test
    void looksAtThoseThatWaitCostLessThanHandingThemOver() {
        var room = new AtomicInteger();
        var looks = new AtomicInteger();
        try (var loop = OwnerLoop.ofCaller("loop", Duration.ofSeconds(1))) {
            loop.progress(() -> {
                room.set(1);
                return 1;
            });
            for (int i = 0; i < POSTS; i++) {
                assertThat(loop.post(new SlowToLookAt(room, looks))).isTrue();
            }
            int taken = 0;
            int rounds = 0;
            while (taken < POSTS) {
                taken += loop.poll() - 1;
                assertThat(rounds++).as("rounds").isLessThan(2 * POSTS);
            }
        }
        assertThat(looks).as("looks at %d posts", POSTS).hasValueLessThan(8 * POSTS);
    }
}
