// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.CopyPlan.RegionCopy;
import io.kvferry.backend.mooncake.p2p.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;

import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

class PushQueueTest {
    /// Throws at the first job, and carries the others.
    private static final class Failing implements Carrier {
        private int started;

        @Override
        public Optional<String> refusal(XferMetadata message) {
            return Optional.empty();
        }

        @Override
        public Runnable start(
                PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended) {
            if (started++ == 0) {
                throw new OutOfMemoryError("thrown by the test");
            }
            ended.accept(Optional.empty());
            return () -> {};
        }
    }

    private static PrefillSlot slot(String transfer) {
        var slot = new PrefillSlot(transfer);
        slot.ready(TransferId.save(transfer, 0), List.of(new int[] {0}));
        return slot;
    }

    private static Ask ask(String transfer) {
        var blocks = new RequestBlocks(transfer, List.of(new int[] {1}));
        var message =
                new XferMetadata(
                        Generation.G7,
                        "127.0.0.1",
                        1,
                        1,
                        0,
                        Map.of(transfer, blocks),
                        WireRegions.NONE,
                        1,
                        0,
                        Optional.empty());
        var plan =
                new CopyPlan(
                        List.of(new RegionCopy(0, 4, 0x1000, 64, 0, 0x2000, 64, 0, 1, 64, 64, 64)),
                        1,
                        1);
        var exchange =
                new PrefillExchange(_ -> true, message, plan, 0, Deadline.in(TestEngine.SOON));
        return new Ask(exchange, transfer, blocks);
    }

    @Test
    void aJobThatCannotBeStartedEndsAndLeavesItsPlaceToTheNext() throws InterruptedException {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read("test", Map.of("num_workers", 1)));
        BlockingQueue<String> ended = new LinkedBlockingQueue<>();
        try (var loop = new SerialLoop("test")) {
            var queue =
                    new PushQueue(
                            new Failing(),
                            loop,
                            settings,
                            new Outbox(0, () -> {}),
                            (_, ask, bytes, problem) ->
                                    ended.add(
                                            ask.request()
                                                    + (problem.isEmpty()
                                                            ? " " + bytes
                                                            : " failed")));
            for (var transfer : List.of("a", "b", "c")) {
                loop.post(() -> queue.add(slot(transfer), ask(transfer)));
            }
            assertThat(ended.poll(30, TimeUnit.SECONDS)).isEqualTo("a failed");
            assertThat(ended.poll(30, TimeUnit.SECONDS)).isEqualTo("b 64");
            assertThat(ended.poll(30, TimeUnit.SECONDS)).isEqualTo("c 64");
        }
    }
}
