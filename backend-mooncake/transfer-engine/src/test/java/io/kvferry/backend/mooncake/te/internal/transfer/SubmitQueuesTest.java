// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.memory.GateSets;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDirectory;
import io.kvferry.backend.mooncake.te.internal.tcp.Watchdog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;

class SubmitQueuesTest {
    private static final Duration SOON = Duration.ofSeconds(30);

    private static TransferContext context(Watchdog watchdog) {
        return context(watchdog, () -> false);
    }

    /// @param closing whether the engine is being closed
    static TransferContext context(Watchdog watchdog, BooleanSupplier closing) {
        var config = EngineConfig.defaults();
        var client = new HandshakeClient(SOON, SOON, 1 << 20);
        var directory = new SegmentDirectory(config, client, () -> new byte[0]);
        return new TransferContext(
                config,
                new RegionTable(),
                new Holders(),
                new GateSets(),
                new PeerTable(directory, config, watchdog),
                new Notifier(directory, client, 1, 1024),
                Runnable::run,
                "here",
                "",
                new GrantTable(),
                closing);
    }

    private static TransferTask task(TransferContext context) {
        var request = EngineRequest.read("there", Ranges.of(1, 1, 1), Deadline.in(SOON));
        return new TransferTask(request, context);
    }

    @Test
    void whatIsCancelledInTheQueueEndsAlsoWhereThereIsNoThreadToEndItOn() {
        try (var watchdog = new Watchdog("test")) {
            var context = context(watchdog);
            var asked = new AtomicInteger();
            var queues =
                    new SubmitQueues(
                            _ -> { // the first one runs for ever
                                if (asked.incrementAndGet() > 1) {
                                    throw new OutOfMemoryError("no native thread (by the test)");
                                }
                            },
                            1,
                            10);
            var ahead = task(context);
            var first = task(context);
            var second = task(context);
            queues.submit("there", ahead);
            queues.submit("there", first);
            queues.submit("there", second);
            first.cancel();
            second.cancel();

            assertThat(queues.endOverdue()).isTrue();
            for (var task : new TransferTask[] {first, second}) {
                assertThat(task.outcome().toCompletableFuture())
                        .isCompletedWithValueMatching(outcome ->
                                outcome instanceof Failed failed
                                        && failed.failure().code() == ErrorCode.CANCELLED);
                assertThat(task.quiesced().toCompletableFuture()).isCompleted();
            }
            assertThat(ahead.outcome().toCompletableFuture()).isNotDone();
        }
    }

    /// A transfer behind one that gets no thread does not wait for it.
    @Test
    void whatWaitsBehindOneThatFindsNoThreadDoesNotWaitForItsDeadline() {
        try (var watchdog = new Watchdog("test")) {
            var context = context(watchdog);
            var ahead = task(context);
            var behind = task(context);
            var submits = new AtomicReference<@Nullable SubmitQueues>();
            var queues =
                    new SubmitQueues(
                            _ -> {
                                var once = submits.getAndSet(null);
                                if (once != null) { // as another thread may at this moment
                                    once.submit("there", behind);
                                }
                                throw new OutOfMemoryError("no native thread (by the test)");
                            },
                            1,
                            10);
            submits.set(queues);
            queues.submit("there", ahead);
            for (var task : new TransferTask[] {ahead, behind}) {
                assertThat(task.outcome().toCompletableFuture())
                        .isCompletedWithValueMatching(outcome ->
                                outcome instanceof Failed failed
                                        && failed.failure().code() == ErrorCode.BACKPRESSURE);
            }
        }
    }
}
