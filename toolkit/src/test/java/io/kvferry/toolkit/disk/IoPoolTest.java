// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Which threads are woken for which tasks, and which tasks end with their deadline.
class IoPoolTest {
    private static final class Task extends IoTask {
        private boolean expired;
        private boolean fails;

        @Override
        protected Runnable expiry(boolean inIo) {
            return () -> {
                expired = true;
                if (fails) {
                    throw new IllegalStateException("of the test");
                }
            };
        }

        @Override
        protected void clear() {}

        void prepare() {
            prepare(System.nanoTime() + TimeUnit.MINUTES.toNanos(5));
        }

        void prepare(long deadlineNanos) {
            expired = false;
            prepared(deadlineNanos);
        }
    }

    /// A helper that is woken for a write and takes a read instead may hang in it.
    @Test
    void aWriteIsTakenWhileAThreadWaitsForOne() throws Exception {
        for (int round = 0; round < 200; round++) {
            var pool = new IoPool<>(4, 3, Task::new);
            var taken = new CountDownLatch(2); // the thread that has one does not come back
            for (var role :
                    new IoPool.Role[] {
                        IoPool.Role.READER, IoPool.Role.HELPER, IoPool.Role.HELPER
                    }) {
                var worker =
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    var self =
                                            new IoPool.ParkedWorker(role, Thread.currentThread());
                                    if (pool.take(self) != null) {
                                        taken.countDown();
                                    }
                                });
                worker.start();
                while (worker.getState() != Thread.State.WAITING) {
                    LockSupport.parkNanos(10_000);
                }
            }
            synchronized (pool) { // nobody takes the one before the other is there
                submit(pool, false);
                submit(pool, true);
            }
            assertThat(taken.await(60, TimeUnit.SECONDS)).as("round %d", round).isTrue();
            pool.close();
        }
    }

    /// They wait for what is claimed, and only one of them is woken for it.
    @Test
    void everyThreadLeavesAClosedPoolOnceWhatWasClaimedIsTaken() throws Exception {
        var pool = new IoPool<>(4, 3, Task::new);
        var taken = new AtomicInteger();
        Task claimed = Objects.requireNonNull(pool.claim(true));
        pool.close();
        var workers = new ArrayList<Thread>();
        for (var role :
                new IoPool.Role[] {
                    IoPool.Role.READER, IoPool.Role.READER, IoPool.Role.HELPER, IoPool.Role.WRITER
                }) {
            var worker =
                    Thread.ofPlatform()
                            .daemon()
                            .unstarted(() -> {
                                var self = new IoPool.ParkedWorker(role, Thread.currentThread());
                                while (pool.take(self) != null) {
                                    taken.incrementAndGet();
                                }
                            });
            worker.start();
            workers.add(worker);
            while (worker.getState() != Thread.State.WAITING) {
                LockSupport.parkNanos(10_000);
            }
        }
        claimed.prepare();
        pool.submit(claimed, true);
        for (var worker : workers) {
            assertThat(worker.join(Duration.ofSeconds(20))).isTrue();
        }
        assertThat(taken).hasValue(1);
    }

    /// Random steps of one thread that plays all roles, with a simulated clock. A passed deadline
    /// must cause a scan that covers every task, whatever was queued, copied or finished meanwhile;
    /// a callback that throws ends only that scan.
    @Test
    void eachPassEndsTheTasksWhoseDeadlineHasPassedAndNoOthers() {
        for (long seed = 0; seed < 300; seed++) {
            var random = new Random(seed);
            var pool = new IoPool<>(6, 3, Task::new);
            var self = new IoPool.ParkedWorker(IoPool.Role.READER, Thread.currentThread());
            var queued = new ArrayDeque<Task>();
            var copying = new ArrayList<Task>();
            var inIo = new ArrayList<Task>();
            var hanging = new ArrayList<Task>();
            long now = Long.MAX_VALUE - 500; // the clock may wrap around
            for (int step = 0; step < 400; step++) {
                switch (random.nextInt(7)) {
                    case 0, 1 -> {
                        Task task = pool.claim(true);
                        if (task != null) {
                            task.fails = random.nextInt(8) == 0;
                            task.prepare(now + random.nextInt(-5, 100));
                            pool.submit(task, true);
                            queued.add(task);
                        }
                    }
                    case 2 -> {
                        if (!queued.isEmpty()) {
                            Task task = Objects.requireNonNull(pool.take(self));
                            assertThat(task).isSameAs(queued.remove());
                            if (task.start()) {
                                copying.add(task);
                            } else {
                                assertThat(task.expired).isTrue();
                                pool.recycle(task, true);
                            }
                        }
                    }
                    case 3 ->
                            take(random, copying)
                                    .ifPresent(task -> {
                                        task.enterIo();
                                        inIo.add(task);
                                    });
                    case 4 ->
                            take(random, inIo)
                                    .ifPresent(task -> {
                                        assertThat(task.leaveIo()).isTrue();
                                        copying.add(task);
                                    });
                    case 5 -> {
                        take(random, random.nextBoolean() ? copying : inIo)
                                .ifPresent(task -> {
                                    assertThat(task.finish()).isTrue();
                                    pool.recycle(task, true);
                                });
                        take(random, hanging)
                                .ifPresent(task -> {
                                    assertThat(task.leaveIo()).isFalse();
                                    pool.recycle(task, true);
                                });
                    }
                    default -> {
                        now += random.nextInt(20);
                        passes(pool, now);
                        for (Task task : queued) {
                            assertExpired(task, now, seed);
                        }
                        for (Task task : List.copyOf(inIo)) {
                            assertExpired(task, now, seed);
                            if (task.expired) {
                                inIo.remove(task);
                                hanging.add(task);
                            }
                        }
                        for (Task task : copying) {
                            assertThat(task.expired).as("copying, seed %d", seed).isFalse();
                        }
                    }
                }
            }
        }
    }

    /// As often as a callback throws.
    private static void passes(IoPool<Task> pool, long now) {
        while (true) {
            try {
                pool.expire(now);
                return;
            } catch (IllegalStateException e) {
                assertThat(e).hasMessage("of the test");
            }
        }
    }

    private static void assertExpired(Task task, long now, long seed) {
        assertThat(task.expired)
                .as("deadline %d at %d, seed %d", task.deadlineNanos(), now, seed)
                .isEqualTo(task.deadlineNanos() - now <= 0);
    }

    private static Optional<Task> take(Random random, List<Task> from) {
        return from.isEmpty()
                ? Optional.empty()
                : Optional.of(from.remove(random.nextInt(from.size())));
    }

    private static void submit(IoPool<Task> pool, boolean read) {
        Task task = Objects.requireNonNull(pool.claim(read));
        task.prepare();
        pool.submit(task, read);
    }
}
