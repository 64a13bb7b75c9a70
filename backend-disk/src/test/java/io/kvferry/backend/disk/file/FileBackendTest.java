// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.file;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/// Transfers that meet errors, threads that cannot be had or hang, and closing meanwhile.
class FileBackendTest {
    private static final int BYTES = 8192;

    @TempDir Path folder;

    private static FileBackend open(ThreadFactory threads) {
        return open(threads, Duration.ofSeconds(60));
    }

    private static FileBackend open(ThreadFactory threads, Duration closeLimit) {
        return new FileBackend("a", false, 1, 4, threads, closeLimit);
    }

    private TransferRequest request(FileBackend backend) {
        var memory =
                backend.register(new MemoryRange.Host(Arena.ofAuto().allocate(BYTES, Long.BYTES)));
        var file = backend.register(new MemoryRange.FileRange(folder.resolve("f"), 0, BYTES, true));
        return new TransferRequest(
                Operation.WRITE,
                backend.prepare(Optional.empty(), DescriptorList.of(memory)),
                backend.prepare(Optional.empty(), DescriptorList.of(file)),
                Deadline.in(Duration.ofMinutes(5)));
    }

    private static TransferOutcome outcome(Transfer transfer) throws Exception {
        return transfer.completion().toCompletableFuture().get(30, TimeUnit.SECONDS);
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aTransferThatMeetsAnErrorEndsWithAFailure() throws Exception {
        try (var backend = open(Thread.ofPlatform().daemon().factory())) {
            var request = request(backend);
            var transfer =
                    new FileTransfer(
                            1,
                            request,
                            (FilePrepared) request.local(),
                            (FilePrepared) request.remote(),
                            () -> {
                                throw new OutOfMemoryError("scripted");
                            },
                            _ -> {});
            transfer.run();
            assertThat(transfer.poll())
                    .get()
                    .isInstanceOfSatisfying(
                            TransferOutcome.Failed.class,
                            failed -> assertThat(failed.failure().message()).contains("scripted"));
            assertThat(transfer.quiesced().toCompletableFuture()).isDone();
        }
    }

    /// Nothing of a transfer that was not accepted stays, and later ones go well.
    @Test
    void refusesATransferForWhichNoThreadCanBeHad() throws Exception {
        var none = new AtomicBoolean(true);
        ThreadFactory threads =
                work -> {
                    if (none.get()) {
                        throw new OutOfMemoryError("unable to create native thread");
                    }
                    return new Thread(work);
                };
        try (var backend = open(threads)) {
            var request = request(backend);
            assertThatThrownBy(() -> backend.submit(request))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.NO_MEMORY));
            assertThat(backend.inFlight()).isZero();
            none.set(false);
            assertThat(outcome(backend.submit(request))).isInstanceOf(TransferOutcome.Done.class);
        }
    }

    /// Otherwise that thread never sleeps again.
    @Test
    void aCallbackThatInterruptsTheDeadlineThreadLeavesItNotInterrupted() throws Exception {
        var hang = new CountDownLatch(1);
        try (var backend =
                open(work ->
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    await(hang);
                                    work.run();
                                }))) {
            var all = request(backend);
            var here = Thread.currentThread();
            var watch = here;
            // With more time where the deadline passed before the callback was there.
            for (int millis = 100; watch.equals(here); millis *= 4) {
                var soon =
                        new TransferRequest(
                                all.operation(),
                                all.local(),
                                all.remote(),
                                Deadline.in(Duration.ofMillis(millis)));
                var told = new CompletableFuture<Thread>();
                backend.submit(soon)
                        .completion()
                        .thenRun(() -> {
                            var teller = Thread.currentThread();
                            if (!teller.equals(here)) {
                                teller.interrupt();
                            }
                            told.complete(teller);
                        });
                watch = told.get(30, TimeUnit.SECONDS);
            }
            long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (watch.isInterrupted() && limit - System.nanoTime() > 0) {
                Thread.sleep(5);
            }
            assertThat(watch.getName()).startsWith("file-deadlines");
            boolean interrupted = watch.isInterrupted();
            hang.countDown();
            assertThat(interrupted).isFalse();
        } finally {
            hang.countDown();
        }
    }

    @Test
    void closingEndsATransferWhoseThreadHangs() throws Exception {
        var hang = new CountDownLatch(1);
        var backend =
                open(work ->
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    await(hang);
                                    work.run();
                                }));
        var transfer = backend.submit(request(backend));
        var closer = Thread.ofPlatform().start(backend::close);
        try {
            assertThat(outcome(transfer))
                    .isInstanceOfSatisfying(
                            TransferOutcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.CLOSED));
            assertThat(transfer.quiesced().toCompletableFuture()).isNotDone();
        } finally {
            hang.countDown();
        }
        assertThat(closer.join(Duration.ofSeconds(60))).isTrue();
        assertThat(transfer.quiesced().toCompletableFuture()).isDone();
    }

    @Test
    void closingWaitsForATransferAlthoughItsThreadIsInterrupted() throws Exception {
        var begun = new CountDownLatch(1);
        var hang = new CountDownLatch(1);
        var backend =
                open(work ->
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    begun.countDown();
                                    await(hang);
                                    work.run();
                                }));
        var transfer = backend.submit(request(backend));
        await(begun);
        var quiesced = new CompletableFuture<Boolean>();
        var stillInterrupted = new AtomicBoolean();
        var closer =
                Thread.ofPlatform()
                        .start(() -> {
                            Thread.currentThread().interrupt();
                            backend.close();
                            quiesced.complete(transfer.quiesced().toCompletableFuture().isDone());
                            stillInterrupted.set(Thread.currentThread().isInterrupted());
                        });
        while (closer.getState() == Thread.State.RUNNABLE
                || closer.getState() == Thread.State.NEW) {
            Thread.onSpinWait();
        }
        hang.countDown();
        assertThat(quiesced.get(60, TimeUnit.SECONDS)).isTrue();
        assertThat(closer.join(Duration.ofSeconds(60))).isTrue();
        assertThat(stillInterrupted).isTrue();
    }

    /// Otherwise one file system that hangs keeps the memory of transfers to others.
    @Test
    void aTransferThatIsCancelledInTheQueueQuiesces() throws Exception {
        var begun = new CountDownLatch(1);
        var hang = new CountDownLatch(1);
        try (var backend =
                open(work ->
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    begun.countDown();
                                    await(hang);
                                    work.run();
                                }))) {
            var first = backend.submit(request(backend));
            await(begun);
            var second = backend.submit(request(backend));
            assertThat(second.cancel()).isTrue();
            second.quiesced().toCompletableFuture().get(60, TimeUnit.SECONDS);
            assertThat(outcome(second)).isInstanceOf(TransferOutcome.Cancelled.class);
            hang.countDown();
            assertThat(outcome(first)).isInstanceOf(TransferOutcome.Done.class);
        }
    }

    /// Closing a channel waits for the system calls on it, which may hang.
    @Test
    void aRegistrationThatIsClosedLeavesItsFileToTheTransferThatUsesIt() {
        var range = new MemoryRange.FileRange(folder.resolve("f"), 0, BYTES, true);
        var gone = new AtomicBoolean();
        var file = Registered.file(range, 1, false, _ -> gone.set(true));
        assertThat(file.enter()).isTrue();
        file.close();
        assertThat(gone).isTrue();
        assertThat(file.enter()).as("by another transfer").isFalse();
        assertThat(file.channel().isOpen()).isTrue();
        file.leave();
        assertThat(file.channel().isOpen()).isFalse();
    }

    /// Memory may be freed after a close that says nothing else.
    @Test
    void aCloseFailsAsLongAsATransferHangs() throws Exception {
        var begun = new CountDownLatch(1);
        var hang = new CountDownLatch(1);
        var backend =
                open(
                        work ->
                                Thread.ofPlatform()
                                        .daemon()
                                        .unstarted(() -> {
                                            begun.countDown();
                                            await(hang);
                                            work.run();
                                        }),
                        Duration.ofMillis(50));
        var transfer = backend.submit(request(backend));
        await(begun);
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(backend::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        assertThat(outcome(transfer)).isInstanceOf(TransferOutcome.Failed.class);
        hang.countDown();
        transfer.quiesced().toCompletableFuture().get(60, TimeUnit.SECONDS);
        await(backend);
    }

    /// The thread itself ends a moment after its transfer.
    private static void await(FileBackend backend) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (true) {
            try {
                backend.close();
                return;
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT);
                assertThat(limit.passed()).isFalse();
            }
        }
    }

    /// Memory may be freed after either.
    @Test
    void aSecondCloseReturnsWhenTheFirstIsDone() throws Exception {
        var begun = new CountDownLatch(1);
        var hang = new CountDownLatch(1);
        var backend =
                open(work ->
                        Thread.ofPlatform()
                                .daemon()
                                .unstarted(() -> {
                                    begun.countDown();
                                    await(hang);
                                    work.run();
                                }));
        var transfer = backend.submit(request(backend));
        await(begun);
        var first = Thread.ofPlatform().start(backend::close);
        outcome(transfer); // the first has begun
        var quiesced = new CompletableFuture<Boolean>();
        var second =
                Thread.ofPlatform()
                        .start(() -> {
                            backend.close();
                            quiesced.complete(transfer.quiesced().toCompletableFuture().isDone());
                        });
        while (second.getState() == Thread.State.RUNNABLE
                || second.getState() == Thread.State.NEW) {
            Thread.onSpinWait();
        }
        hang.countDown();
        assertThat(quiesced.get(60, TimeUnit.SECONDS)).isTrue();
        assertThat(first.join(Duration.ofSeconds(60))).isTrue();
    }
}
