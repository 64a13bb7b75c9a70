// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlan;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlan.RegionCopy;
import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
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
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

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

    /// Keeps what was started until the test ends it.
    private static final class Held implements Carrier {
        private final List<Started> started = new ArrayList<>();

        private record Started(String decoder, Consumer<Optional<Failure>> ended) {}

        @Override
        public Optional<String> refusal(XferMetadata message) {
            return Optional.empty();
        }

        @Override
        public Runnable start(
                PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended) {
            started.add(new Started(ask.exchange().decoder(), ended));
            return () -> {};
        }

        private long of(String decoder) {
            return started.stream().filter(one -> one.decoder().equals(decoder)).count();
        }
    }

    private static PrefillSlot slot(String transfer) {
        var slot = new PrefillSlot(transfer);
        slot.ready(Optional.of(TransferId.save(transfer, 0)), List.of(new int[] {0}));
        return slot;
    }

    private static Ask ask(String transfer) {
        return ask(transfer, 1);
    }

    /// @param port tells decoders apart
    private static Ask ask(String transfer, int port) {
        return ask(transfer, port, "h");
    }

    /// @param host where it really comes from
    static Ask ask(String transfer, int port, String host) {
        var blocks = new RequestBlocks(transfer, List.of(new int[] {1}));
        var message =
                new XferMetadata(
                        Generation.G7,
                        "127.0.0.1",
                        port,
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
                new PrefillExchange(new From(host), message, plan, 0, Deadline.in(TestEngine.SOON));
        return new Ask(exchange, transfer, blocks);
    }

    private record From(String host) implements SideChannel.Asker {
        @Override
        public boolean answer(byte[] message) {
            return true;
        }
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

    /// Waits for what was posted before.
    private static <T> T on(SerialLoop loop, Supplier<T> work) {
        var result = new CompletableFuture<T>();
        loop.post(() -> result.complete(work.get()));
        return result.orTimeout(30, TimeUnit.SECONDS).join();
    }

    @Test
    void aDecoderAloneHasAllWorkers() {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read("test", Map.of("num_workers", 10)));
        var carrier = new Held();
        try (var loop = new SerialLoop("test")) {
            var queue =
                    new PushQueue(
                            carrier, loop, settings, new Outbox(0, () -> {}), (_, _, _, _) -> {});
            for (int i = 0; i < 30; i++) {
                var transfer = "a" + i;
                loop.post(() -> queue.add(slot(transfer), ask(transfer, 1)));
            }
            assertThat(on(loop, carrier.started::size)).isEqualTo(10);
            for (int i = 0; i < 30; i++) {
                var transfer = "b" + i;
                loop.post(() -> queue.add(slot(transfer), ask(transfer, 2)));
            }
            assertThat(on(loop, () -> carrier.of(ask("b", 2).exchange().decoder())))
                    .as("of a decoder that comes behind one that stalls with all workers")
                    .isEqualTo(5);
        }
    }

    /// A stranger may call itself as many decoders as it likes.
    @Test
    void aHostOfManyNamesLeavesTheOthersTheirHalf() {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read("test", Map.of("num_workers", 10)));
        var carrier = new Held();
        try (var loop = new SerialLoop("test")) {
            var queue =
                    new PushQueue(
                            carrier, loop, settings, new Outbox(0, () -> {}), (_, _, _, _) -> {});
            for (int i = 0; i < 60; i++) {
                var transfer = "a" + i;
                int name = i;
                loop.post(() -> queue.add(slot(transfer), ask(transfer, name, "stranger")));
            }
            for (int i = 0; i < 30; i++) {
                var transfer = "b" + i;
                loop.post(() -> queue.add(slot(transfer), ask(transfer, 1_000, "h")));
            }
            assertThat(on(loop, () -> carrier.of(ask("b", 1_000).exchange().decoder())))
                    .as("of the honest decoder, while the stranger's transfers stall")
                    .isEqualTo(5);
            assertThat(on(loop, carrier.started::size)).isEqualTo(15);
        }
    }

    /// Decoders come and go as chance has it; after each step the counts must be what the rules
    /// leave.
    @Test
    void sharesFollowTheRulesWhateverTheOrder() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int round = 0; round < 40; round++) {
            int workers = 1 + random.nextInt(8);
            int decoders = 1 + random.nextInt(4);
            int hosts = 1 + random.nextInt(3);
            shares(random, workers, decoders, hosts, "seed " + seed + ", round " + round);
        }
    }

    private static void shares(Random random, int workers, int decoders, int hosts, String what) {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read("test", Map.of("num_workers", workers)));
        var carrier = new Held();
        int half = (workers + 1) / 2;
        var added = new int[decoders];
        var ended = new int[decoders];
        try (var loop = new SerialLoop("test")) {
            var queue =
                    new PushQueue(
                            carrier,
                            loop,
                            settings,
                            new Outbox(0, () -> {}),
                            (_, ask, _, _) -> ended[ask.exchange().message().remotePort()]++);
            for (int step = 0; step < 150; step++) {
                if (random.nextInt(5) < 3) {
                    int decoder = random.nextInt(decoders);
                    added[decoder]++;
                    var transfer = "t" + step;
                    loop.post(() ->
                            queue.add(
                                    slot(transfer), ask(transfer, decoder, "h" + decoder % hosts)));
                } else {
                    int at = random.nextInt(1 << 16);
                    loop.post(() -> {
                        if (!carrier.started.isEmpty()) {
                            carrier.started
                                    .remove(at % carrier.started.size())
                                    .ended()
                                    .accept(Optional.empty());
                        }
                    });
                    on(loop, () -> 0); // its end is posted behind it
                }
                var running =
                        on(
                                loop,
                                () -> {
                                    var counts = new int[decoders];
                                    for (int d = 0; d < decoders; d++) {
                                        counts[d] =
                                                (int) carrier.of(ask("x", d).exchange().decoder());
                                    }
                                    return counts;
                                });
                if (hosts == 1) {
                    check(running, added, ended, workers, half, what + ", step " + step);
                } else {
                    checkHosts(
                            hosts, running, added, ended, workers, half, what + ", step " + step);
                }
            }
        }
    }

    private static void checkHosts(
            int hosts,
            int[] running,
            int[] added,
            int[] ended,
            int workers,
            int half,
            String what) {
        int total = Arrays.stream(running).sum();
        var ofHost = new int[hosts];
        for (int d = 0; d < running.length; d++) {
            ofHost[d % hosts] += running[d];
        }
        int shared = Arrays.stream(ofHost).map(count -> Math.min(count, half)).sum();
        assertThat(total).as(what).isLessThanOrEqualTo(workers + 2 * half);
        for (int d = 0; d < running.length; d++) {
            if (added[d] - ended[d] > running[d]) { // it waits
                assertThat(total).as(what + ": idle workers").isGreaterThanOrEqualTo(workers);
                assertThat(ofHost[d % hosts] >= half || shared >= workers)
                        .as(what + ": host of %d is held up", d)
                        .isTrue();
            }
        }
    }

    private static void check(
            int[] running, int[] added, int[] ended, int workers, int half, String what) {
        int total = Arrays.stream(running).sum();
        int shared = Arrays.stream(running).map(count -> Math.min(count, half)).sum();
        assertThat(total).as(what).isLessThanOrEqualTo(workers + half);
        for (int d = 0; d < running.length; d++) {
            assertThat(running[d]).as(what).isLessThanOrEqualTo(workers);
            if (added[d] - ended[d] > running[d]) { // it waits
                assertThat(total).as(what + ": idle workers").isGreaterThanOrEqualTo(workers);
                assertThat(running[d] >= half || shared >= workers)
                        .as(what + ": decoder %d is held up", d)
                        .isTrue();
            }
        }
    }
}
