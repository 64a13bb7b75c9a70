// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class EvictionLockTest {
    @TempDir Path folder;

    /// A thread may hang in the file system with the lock for longer than its store waits for it.
    @Test
    void writesToNoOtherFileWhenItIsClosedWhileAThreadHasIt() throws Exception {
        var calls = FileCalls.ofPlatform();
        Path file = folder.resolve("lock");
        Path another = Files.writeString(folder.resolve("another"), "bytes of somebody else");
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        var lock = new EvictionLock(calls, file);
        assertThat(lock.lock(limit)).isTrue();
        lock.close();
        lock.close();
        int handle;
        try (Arena arena = Arena.ofConfined()) { // gets the handle of the lock if that is free
            handle = calls.openLockFile(PathText.of(arena, another));
        }
        assertThat(handle).isNotNegative();
        try (var next = new EvictionLock(calls, file)) {
            assertThat(next.lock(limit)).as("others need not wait").isTrue();
            next.unlock(false);
            assertThat(lock.lock(limit)).as("not after it was closed").isFalse();
            lock.unlock(true);
            assertThat(Files.readString(another)).isEqualTo("bytes of somebody else");
            assertThat(next.lock(limit)).isTrue();
            assertThat(next.othersEvicted()).isTrue();
            next.unlock(false);
        }
        calls.close(handle);
    }

    /// As on a full disk, when the count is written for the first time.
    @Test
    void anEvictionThatCouldNotBeNotedIsNotTakenForThatOfAnotherProcess() {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        try (var lock = new EvictionLock(calls, folder.resolve("lock"))) {
            assertThat(lock.lock(limit)).isTrue();
            lock.look(() -> {});
            calls.hook = (call, _) -> call.equals("write") ? -Errno.ENOSPC : 0;
            lock.unlock(true);
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(lock.lock(limit)).isTrue();
            assertThat(lock.othersEvicted()).isFalse();
            lock.unlock(true);
            assertThat(lock.lock(limit)).isTrue();
            assertThat(lock.othersEvicted()).isFalse();
            lock.unlock(false);
        }
    }

    /// The caller retries until its deadline and would otherwise busy-loop. The lock may be held by
    /// a thread of this process or by another process.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anInterruptedThreadWaits(boolean within) throws Exception {
        Path file = folder.resolve("lock");
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        try (var lock = new EvictionLock(FileCalls.ofPlatform(), file);
                var other = new EvictionLock(FileCalls.ofPlatform(), file)) {
            var holder = within ? lock : other;
            assertThat(holder.lock(limit)).isTrue();
            var got = new CompletableFuture<Boolean>();
            var thread =
                    Thread.ofPlatform()
                            .start(() -> {
                                Thread.currentThread().interrupt();
                                got.complete(lock.lock(limit) && Thread.interrupted());
                            });
            while (thread.getState() != Thread.State.TIMED_WAITING) {
                assertThat(thread.isAlive() && limit - System.nanoTime() > 0).as("waits").isTrue();
            }
            holder.unlock(false);
            assertThat(got.get(60, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// Such as want of lock records in the kernel, or a file that another host has replaced.
    @Test
    void excludesOtherProcessesAgainAfterTheSystemGaveNoLockOnce() {
        int noLocks = 37; // ENOLCK of Linux
        var failing = new FaultInjectingCalls(FileCalls.ofPlatform());
        Assumptions.assumeTrue(failing.gatherLimit() > 0, "needs flock of Linux");
        Path file = folder.resolve("lock");
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        try (var one = new EvictionLock(failing, file);
                var other = new EvictionLock(FileCalls.ofPlatform(), file)) {
            failing.hook = (call, _) -> call.equals("tryLock") ? -noLocks : 0;
            assertThat(one.lock(limit)).as("evictions go on").isTrue();
            one.unlock(true);
            failing.hook = FaultInjectingCalls.PASS;
            assertThat(other.lock(limit)).isTrue();
            assertThat(one.lock(System.nanoTime())).isFalse();
            other.unlock(false);
            assertThat(one.lock(limit)).isTrue();
            one.unlock(false);
        }
    }
}
