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
