// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.Mix;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/// A seeded random schedule of two engines that share one source of blocks: requests arrive, load,
/// compute, are preempted, aborted and finished in any legal order. The harnesses check after each
/// step; at the end nothing may be open.
final class Interleaving {
    private static final int ACTIONS = 60;
    private static final int LIVE = 4;

    private final Random random;
    private final ConnectorHarness producer;
    private final ConnectorHarness consumer;
    private final TransferParams producerParams;
    private final boolean handsOff;
    private final Duration limit;
    private final List<HarnessRequest> ofProducer = new ArrayList<>();
    private final List<HarnessRequest> ofConsumer = new ArrayList<>();
    private final ArrayDeque<TransferParams> handOffs = new ArrayDeque<>();
    private final ArrayDeque<Integer> handedPrompts = new ArrayDeque<>();
    private int names;

    Interleaving(
            long seed,
            ConnectorHarness producer,
            ConnectorHarness consumer,
            TransferParams producerParams,
            boolean handsOff,
            Duration limit) {
        this.random = new Random(seed);
        this.producer = producer;
        this.consumer = consumer;
        this.producerParams = producerParams;
        this.handsOff = handsOff;
        this.limit = limit;
    }

    void run() {
        for (int i = 0; i < ACTIONS; i++) {
            boolean first = random.nextBoolean();
            act(first ? producer : consumer, first ? ofProducer : ofConsumer);
        }
        wind(producer, ofProducer);
        wind(consumer, ofConsumer);
        consumer.settle(limit);
        producer.expireHolds();
        producer.expireLeases();
        producer.stepUntil(
                "the producer's holds end",
                limit,
                () -> {
                    consumer.step();
                    return producer.openHolds().isEmpty() && producer.openLeases().isEmpty();
                });
        producer.settle(limit);
        consumer.settle(limit);
    }

    private void act(ConnectorHarness harness, List<HarnessRequest> live) {
        if (live.size() < LIVE && random.nextInt(4) == 0) {
            live.add(submit(harness));
            return;
        }
        if (live.isEmpty() || random.nextInt(3) == 0) {
            harness.step();
            return;
        }
        var request = live.get(random.nextInt(live.size()));
        switch (request.state()) {
            case WAITING -> waiting(harness, live, request);
            case LOADING -> {
                if (random.nextInt(6) == 0) {
                    end(harness, live, request, FinishReason.ABORT);
                } else {
                    harness.step();
                }
            }
            case RUNNING -> running(harness, live, request);
            case FINISHED -> live.remove(request);
        }
    }

    /// Prompts share prefixes, and some are as good as equal.
    private HarnessRequest submit(ConnectorHarness harness) {
        boolean fromHandOff = harness == consumer && !handOffs.isEmpty() && random.nextBoolean();
        int kind = fromHandOff ? handedPrompts.removeFirst() : random.nextInt(6);
        var params =
                fromHandOff
                        ? handOffs.removeFirst()
                        : harness == producer && handsOff && random.nextBoolean()
                                ? producerParams
                                : TransferParams.EMPTY;
        return harness.submit("q" + names++ + "k" + kind, prompt(harness, kind), "", params);
    }

    private static int[] prompt(ConnectorHarness harness, int kind) {
        int blockTokens = harness.shape().blockTokens();
        var tokens = new int[(2 + kind) * blockTokens + kind % 3];
        for (int i = 0; i < tokens.length; i++) {
            tokens[i] = (int) (Mix.mix(i < 2 * blockTokens ? i : i + kind * 131L) & 0x3fff);
        }
        return tokens;
    }

    private void waiting(
            ConnectorHarness harness, List<HarnessRequest> live, HarnessRequest request) {
        if (random.nextInt(8) == 0) {
            end(harness, live, request, FinishReason.ABORT);
            return;
        }
        int needed =
                Math.ceilDiv(request.tokenCount(), harness.shape().blockTokens())
                        * harness.shape().groups();
        var answer = harness.lookup(request, 0);
        if (answer instanceof LookupResult.Pending || harness.freeBlocks() < needed + LIVE) {
            return; // asked in vain, as happens when blocks are short
        }
        harness.allocate(request, 0, random.nextInt(5) == 0 ? LookupResult.MISS : answer);
    }

    private void running(
            ConnectorHarness harness, List<HarnessRequest> live, HarnessRequest request) {
        switch (random.nextInt(10)) {
            case 0 -> {
                if (harness.hasOpenLoad(request)) {
                    harness.step();
                } else {
                    harness.preempt(request);
                }
            }
            case 1 -> end(harness, live, request, FinishReason.ABORT);
            default -> {
                if (request.computed() < request.tokenCount() || random.nextBoolean()) {
                    harness.schedule(
                            request, 1 + random.nextInt(2 * harness.shape().blockTokens()));
                    harness.step();
                } else {
                    end(harness, live, request, FinishReason.LENGTH);
                }
            }
        }
    }

    private void end(
            ConnectorHarness harness,
            List<HarnessRequest> live,
            HarnessRequest request,
            FinishReason reason) {
        var params = JsonShape.copy(harness.finish(request, reason).params());
        live.remove(request);
        if (harness == producer && handsOff && !params.values().isEmpty()) {
            handOffs.add(params);
            handedPrompts.add(
                    Integer.parseInt(request.id().substring(request.id().indexOf('k') + 1)));
        }
    }

    private void wind(ConnectorHarness harness, List<HarnessRequest> live) {
        for (var request : List.copyOf(live)) {
            end(harness, live, request, FinishReason.ABORT);
        }
    }
}
