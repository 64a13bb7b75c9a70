// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

class UninterruptedTest {
    private static final Duration LONG = Duration.ofSeconds(30);

    @AfterEach
    void clear() {
        Thread.interrupted();
    }

    @Test
    void anInterruptEndsNoWaitAndIsKept() {
        var come = new CountDownLatch(1);
        var waiter = Thread.currentThread();
        interruptWhenWaiting(waiter, come::countDown);
        assertThat(Uninterrupted.await(nanos -> come.await(nanos, TimeUnit.NANOSECONDS), LONG))
                .isTrue();
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void aWaitEndsByItsLimitThoughTheThreadIsInterrupted() {
        var never = new CountDownLatch(1);
        Thread.currentThread().interrupt();
        var limit = Deadline.in(Duration.ofMillis(20));
        assertThat(Uninterrupted.await(nanos -> never.await(nanos, TimeUnit.NANOSECONDS), limit))
                .isFalse();
        assertThat(limit.passed()).isTrue();
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void aPassedDeadlineLooksOnce() {
        var looks = new AtomicInteger();
        var passed = Deadline.in(Duration.ofMillis(-1));
        boolean come =
                Uninterrupted.await(
                        nanos -> {
                            assertThat(nanos).isZero();
                            return looks.incrementAndGet() == 1;
                        },
                        passed);
        assertThat(come).isTrue();
    }

    @Test
    void threadsAreAwaited() throws Exception {
        var release = new CountDownLatch(1);
        var thread = Thread.ofPlatform().daemon().start(() -> awaitQuietly(release));
        try (var threads = Executors.newSingleThreadExecutor()) {
            threads.execute(() -> awaitQuietly(release));
            threads.shutdown();
            Thread.currentThread().interrupt();
            assertThat(Uninterrupted.join(thread, Duration.ofMillis(1))).isFalse();
            assertThat(Uninterrupted.awaitTermination(threads, Duration.ofMillis(1))).isFalse();
            release.countDown();
            assertThat(Uninterrupted.join(thread, LONG)).isTrue();
            assertThat(Uninterrupted.awaitTermination(threads, LONG)).isTrue();
            assertThat(Thread.interrupted()).isTrue();
        }
    }

    @Test
    void whatTheCallThrowsComesOutAndTheInterruptIsKept() {
        var failed = new CompletableFuture<String>();
        failed.completeExceptionally(new IllegalStateException("says the test"));
        var calls = new AtomicInteger();
        interruptWhenWaiting(Thread.currentThread(), () -> {});
        assertThatThrownBy(() ->
                        Uninterrupted.run(() -> {
                            if (calls.incrementAndGet() == 1) {
                                Thread.sleep(LONG);
                            }
                            failed.get();
                        }))
                .isInstanceOf(ExecutionException.class)
                .hasRootCauseMessage("says the test");
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void filesAreReadByAnInterruptedThread(@TempDir Path folder) throws Exception {
        var path = Files.writeString(folder.resolve("file"), "some");
        Thread.currentThread().interrupt();
        assertThat(
                        Uninterrupted.files(() -> {
                            try (var file = FileChannel.open(path, StandardOpenOption.READ)) {
                                return file.size();
                            }
                        }))
                .isEqualTo(4);
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void fileWorkThatAnInterruptBreaksOffIsDoneAgain(@TempDir Path folder) throws Exception {
        var path = Files.writeString(folder.resolve("file"), "some");
        var tries = new AtomicInteger();
        assertThat(
                        Uninterrupted.files(() -> {
                            if (tries.incrementAndGet() < 3) {
                                Thread.currentThread().interrupt();
                            }
                            try (var file = FileChannel.open(path, StandardOpenOption.READ)) {
                                return file.size();
                            }
                        }))
                .isEqualTo(4);
        assertThat(tries).hasValue(3);
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void fileWorkThatFailsIsNotRepeated() {
        var tries = new AtomicInteger();
        Thread.currentThread().interrupt();
        assertThatThrownBy(() ->
                        Uninterrupted.files(() -> {
                            tries.incrementAndGet();
                            throw new IOException("no handles left, says the test");
                        }))
                .isInstanceOf(IOException.class);
        assertThat(tries).hasValue(1);
        assertThat(Thread.interrupted()).isTrue();
    }

    private static void interruptWhenWaiting(Thread waiter, Runnable then) {
        Thread.ofVirtual()
                .start(() -> {
                    var limit = Deadline.in(LONG);
                    while (waiter.getState() != Thread.State.TIMED_WAITING && !limit.passed()) {
                        Thread.yield();
                    }
                    waiter.interrupt();
                    then.run();
                });
    }

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            var _ = latch.await(30, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
