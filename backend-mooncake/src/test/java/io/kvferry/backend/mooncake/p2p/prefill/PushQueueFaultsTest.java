// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// A queue whose carrier, whose listener and whose revocations fail and come as chance has it. All
/// of it happens on the queue's own loop, so that a seed gives the same history again.
class PushQueueFaultsTest {
    private static final int WORKERS = 3;
    private static final Failure REVOKED = new Failure(ErrorCode.LEASE_EXPIRED, "revoked");

    private final long seed = System.nanoTime();
    private final Random random = new Random(seed);
    private final List<PrefillSlot> slots = new ArrayList<>();

    /// Of each request that was added, how often its end was told.
    private final Map<String, Integer> ends = new HashMap<>();

    /// Transfers that were started and have not ended.
    private final List<Consumer<Optional<Failure>>> running = new ArrayList<>();

    private int added;

    /// Refuses to start, ends at once, or keeps the transfer.
    private final class Moody implements Carrier {
        @Override
        public Optional<String> refusal(XferMetadata message) {
            return Optional.empty();
        }

        @Override
        public Runnable start(
                PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended) {
            switch (random.nextInt(4)) {
                case 0 -> throw new OutOfMemoryError("thrown by the test");
                case 1 -> ended.accept(Optional.empty());
                default -> running.add(ended);
            }
            return () -> {};
        }
    }

    private void ended(Ask ask) {
        ends.merge(ask.request(), 1, Integer::sum);
        if (random.nextInt(4) == 0) {
            throw new OutOfMemoryError("thrown by the test");
        }
    }

    /// Of one of four decoders on two hosts.
    private Ask request(String name) {
        int decoder = random.nextInt(4);
        return PushQueueTest.ask(name, decoder, "h" + decoder % 2);
    }

    private void step(PushQueue queue) {
        switch (random.nextInt(6)) {
            case 0, 1, 2 -> {
                var slot = slots.get(random.nextInt(slots.size()));
                queue.add(slot, request("r" + added++));
            }
            case 3, 4 -> {
                if (!running.isEmpty()) {
                    var how =
                            random.nextBoolean() ? Optional.<Failure>empty() : Optional.of(REVOKED);
                    running.remove(random.nextInt(running.size())).accept(how);
                }
            }
            default -> queue.withdraw(slots.get(random.nextInt(slots.size())), REVOKED);
        }
    }

    private void endAll() {
        var all = List.copyOf(running);
        running.clear();
        all.forEach(one -> one.accept(Optional.empty()));
    }

    private static void on(SerialLoop loop, Runnable work) throws Exception {
        var done = new CompletableFuture<Void>();
        loop.post(() -> {
            try {
                work.run();
                done.complete(null);
            } catch (RuntimeException | Error e) {
                done.completeExceptionally(e);
            }
        });
        done.get(60, TimeUnit.SECONDS);
    }

    @Test
    void everyJobEndsOnceWhateverFails() throws Exception {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read("test", Map.of("num_workers", WORKERS)));
        for (int i = 0; i < 3; i++) {
            var slot = new PrefillSlot("t" + i);
            slot.ready(Optional.of(TransferId.save("t" + i, 0)), List.of(new int[] {0}));
            slots.add(slot);
        }
        try (var loop = new SerialLoop("test")) {
            var queue =
                    new PushQueue(
                            new Moody(),
                            loop,
                            settings,
                            new Outbox(0, () -> {}),
                            (_, ask, _, _) -> ended(ask));
            for (int i = 0; i < 5_000; i++) {
                on(loop, () -> step(queue));
                on(loop, () -> {}); // ends are posted
            }
            for (int i = 0; i < added; i++) { // each may let another one begin
                on(loop, this::endAll);
            }
            on(
                    loop,
                    () -> {
                        assertThat(ends.values()).as("seed %d", seed).containsOnly(1);
                        assertThat(ends).as("seed %d", seed).hasSize(added);
                        assertThat(slots)
                                .as("seed %d", seed)
                                .allSatisfy(slot -> assertThat(slot.inFlight()).isEmpty());
                    });
        }
    }
}
