// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferId.Direction;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

class OutboxTest {
    private static final Completion.Result DONE = new Completion.Completed(1);

    @TempDir Path folder;

    private static TransferId id(int number) {
        return new TransferId("request", 0, Direction.LOAD, number, "");
    }

    @Test
    void aReportHasWhatCameSinceTheOneBefore() {
        var woken = new AtomicInteger();
        var outbox = new Outbox(3, woken::incrementAndGet);
        outbox.complete(id(1), DONE);
        outbox.complete(id(2), DONE);
        outbox.count("frames");
        var report = outbox.report(7, Payload.EMPTY);
        assertThat(report.rank()).isEqualTo(3);
        assertThat(report.step()).isEqualTo(7);
        assertThat(report.completions()).extracting(Completion::id).containsExactly(id(1), id(2));
        assertThat(report.stats().counters()).containsEntry("frames", 1L);
        assertThat(woken).hasValue(2);
        var next = outbox.report(8, Payload.EMPTY);
        assertThat(next.completions()).isEmpty();
        assertThat(next.stats().isEmpty()).isTrue();
    }

    @Test
    void aTransferIsCompletedOnce() {
        var outbox = new Outbox(0, () -> {});
        outbox.complete(id(1), DONE);
        var _ = outbox.report(1, Payload.EMPTY);
        outbox.complete(id(1), DONE);
        assertThat(outbox.report(2, Payload.EMPTY).completions()).isEmpty();
    }

    @Test
    void whatAReportHasNoMemoryForIsInTheNext() throws Exception {
        assertThat(FullHeap.run(folder, 32, Duration.ofSeconds(120), Child.class))
                .containsExactly("no memory: true", "in the next: 1000");
    }

    /// The table of what was completed grows in vain.
    @Test
    void aCompletionForWhichThereIsNoMemoryCanBeToldAgain() throws Exception {
        assertThat(FullHeap.runSweep(folder, 16, Again.class)).isPositive();
    }

    static final class Again implements FullHeap.Trial {
        private static final int BEFORE = 12; // one more makes the table grow

        private Outbox outbox = new Outbox(0, () -> {});

        private Again() {}

        public static void main(String[] args) {
            FullHeap.sweepAndExit(16, 1 << 16, new Again());
        }

        @Override
        public void prepare() {
            outbox = new Outbox(0, () -> {});
            for (int i = 0; i < BEFORE; i++) {
                outbox.complete(id(i), DONE);
            }
        }

        @Override
        public boolean work() {
            outbox.complete(id(BEFORE), DONE);
            return true;
        }

        @Override
        public void check(int left) {
            outbox.complete(id(BEFORE), DONE);
            assertThat(outbox.report(1, Payload.EMPTY).completions())
                    .as("%d bytes left", left)
                    .hasSize(BEFORE + 1);
        }
    }

    static final class Child {
        private Child() {}

        public static void main(String[] args) {
            var outbox = new Outbox(0, () -> {});
            for (int i = 0; i < 1000; i++) {
                outbox.complete(id(i), DONE);
            }
            System.out.println(
                    "no memory: " + FullHeap.during(() -> outbox.report(1, Payload.EMPTY)));
            System.out.println(
                    "in the next: " + outbox.report(2, Payload.EMPTY).completions().size());
        }
    }
}
