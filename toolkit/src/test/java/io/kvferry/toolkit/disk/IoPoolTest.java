// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Which threads are woken for which tasks.
class IoPoolTest {
    private static final class Task extends IoTask {
        @Override
        protected Runnable expiry(boolean inIo) {
            return () -> {};
        }

        @Override
        protected void clear() {}

        void prepare() {
            prepared(System.nanoTime() + TimeUnit.MINUTES.toNanos(5));
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

    private static void submit(IoPool<Task> pool, boolean read) {
        Task task = Objects.requireNonNull(pool.claim(read));
        task.prepare();
        pool.submit(task, read);
    }
}
