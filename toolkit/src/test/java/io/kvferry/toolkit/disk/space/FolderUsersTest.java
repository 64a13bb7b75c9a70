// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

class FolderUsersTest {
    @TempDir Path folder;

    @Test
    void tellsWhetherOthersHaveTheFolderOpen() throws Exception {
        var calls = FileCalls.ofPlatform();
        Assumptions.assumeTrue(calls.gatherLimit() > 0, "needs flock of Linux");
        Path file = folder.resolve("users");
        try (var one = new FolderUsers(calls, file)) {
            assertThat(one.others()).isFalse();
            try (var two = new FolderUsers(calls, file)) {
                for (int i = 0; i < 3; i++) {
                    assertThat(one.others()).isTrue();
                    assertThat(two.others()).isTrue();
                }
            }
            assertThat(one.others()).isFalse();
            Files.delete(file);
            try (var later = new FolderUsers(calls, file)) {
                one.reopen(System.nanoTime());
                assertThat(one.others()).isTrue();
                assertThat(later.others()).isTrue();
            }
        }
    }

    @Test
    void answersAsBeforeWhileAnotherThreadAsks() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        Assumptions.assumeTrue(calls.gatherLimit() > 0, "needs flock of Linux");
        var asks = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        try (var users = new FolderUsers(calls, folder.resolve("users"))) {
            assertThat(users.others()).isFalse();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("tryLock")) {
                            asks.countDown();
                            await(go);
                        }
                        return 0;
                    };
            var asking = Thread.ofPlatform().start(users::others);
            assertThat(asks.await(30, TimeUnit.SECONDS)).isTrue();
            assertThat(users.others()).isFalse();
            go.countDown();
            asking.join();
        }
    }

    /// Without system calls the locks of a process exclude each other, too.
    @Test
    void keepsItsShareWhenTheFileIsOpenedAnew() throws Exception {
        Path file = folder.resolve("users");
        try (var users = new FolderUsers(FileCalls.ofChannels(), file)) {
            users.reopen(System.nanoTime());
            try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                assertThatThrownBy(channel::tryLock)
                        .isInstanceOf(OverlappingFileLockException.class);
            }
        }
    }

    @Test
    void takesOthersToBeThereWhereItCannotTell() {
        try (var users = new FolderUsers(FileCalls.ofPlatform(), folder.resolve("absent/users"))) {
            assertThat(users.others()).isTrue();
        }
    }

    /// For example a background thread of a store that hung in the file system while the store was
    /// closed: otherwise the file would count as used until the process ends.
    @Test
    void doesNotOpenTheFileAgainOnceItIsClosed() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        Assumptions.assumeTrue(calls.gatherLimit() > 0, "needs flock of Linux");
        Path file = folder.resolve("users");
        try (var one = new FolderUsers(calls, file)) {
            var two = new FolderUsers(calls, file);
            two.close();
            two.reopen(System.nanoTime());
            assertThat(two.others()).isTrue();
            assertThat(one.others()).isFalse();
        }
    }

    @Test
    void closesWhileAThreadHangsInTheFileSystem() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        Assumptions.assumeTrue(calls.gatherLimit() > 0, "needs flock of Linux");
        Path file = folder.resolve("users");
        var hangs = new CountDownLatch(1);
        var hang = new CountDownLatch(1);
        try (var other = new FolderUsers(FileCalls.ofPlatform(), file)) {
            var users = new FolderUsers(calls, file);
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openLockFile")) {
                            hangs.countDown();
                            await(hang);
                        }
                        return 0;
                    };
            var janitor = Thread.ofPlatform().start(() -> users.reopen(System.nanoTime()));
            try {
                await(hangs);
                var closer = Thread.ofPlatform().daemon().start(users::close);
                assertThat(closer.join(Duration.ofSeconds(30))).isTrue();
            } finally {
                hang.countDown();
            }
            assertThat(janitor.join(Duration.ofSeconds(30))).isTrue();
            assertThat(other.others()).isFalse();
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
