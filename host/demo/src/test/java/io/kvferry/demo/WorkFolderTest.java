// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

class WorkFolderTest {
    private Path path = Path.of("");

    @Test
    void isDeletedWithAllThatIsInIt() throws Exception {
        var folder = WorkFolder.create("kvferry-work");
        folder.make(here -> {
            path = here;
            Files.writeString(Files.createDirectory(here.resolve("disk")).resolve("a"), "x");
        });

        assertThat(folder.close()).isTrue();
        assertThat(folder.close()).isFalse();
        folder.delete();

        assertThat(path).doesNotExist();
    }

    @Test
    void takesNothingOnceItIsClosed() {
        var folder = WorkFolder.create("kvferry-work");
        folder.close();
        try {
            assertThatThrownBy(() -> folder.make(here -> Files.createFile(here.resolve("late"))))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
        } finally {
            folder.delete();
        }
    }

    @Test
    void isClosedWhenNobodyMakesAnythingInIt() throws Exception {
        var folder = WorkFolder.create("kvferry-work");
        var entered = new CountDownLatch(1);
        var goOn = new CountDownLatch(1);
        try (var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            var maker =
                    threads.submit(() -> {
                        folder.make(here -> {
                            path = here;
                            entered.countDown();
                            await(goOn);
                            Files.createFile(here.resolve("disk"));
                        });
                        return true;
                    });
            await(entered);
            var end =
                    threads.submit(() -> {
                        folder.close();
                        folder.delete();
                    });
            assertThatThrownBy(() -> end.get(100, TimeUnit.MILLISECONDS))
                    .isInstanceOf(TimeoutException.class);
            goOn.countDown();
            assertThat(maker.get(60, TimeUnit.SECONDS)).isTrue();
            end.get(60, TimeUnit.SECONDS);
        }
        assertThat(path).doesNotExist();
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
