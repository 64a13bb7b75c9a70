// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.fail;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.Patience;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Set;

/// Group B of [KvConnectorContract]: allocation and step plans.
abstract class KvAllocationTests extends KvLookupTests {
    private static final Set<ErrorCode> DAMAGED =
            Set.of(ErrorCode.PROTOCOL, ErrorCode.INCOMPATIBLE, ErrorCode.CORRUPT);

    @Test
    @DisplayName("B10 blocks without a load assigned to them are not touched")
    void blocksWithoutALoadAreNotTouched() {
        var pair = pair();
        var tokens = prompt(10, 3, 1);
        var params = pair.make(tokens);
        var request =
                loads() ? pair.want(tokens, params) : pair.consumer.submit("r", tokens, "", params);
        pair.consumer.allocate(request, 0, LookupResult.MISS);
        for (int i = 0; i < 5; i++) {
            pair.consumer.step();
            pair.consumer.mustBeUntouched(request);
        }
        assertThat(pair.consumer.completions()).isEmpty();
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName("B11 the second allocation, after the load, changes nothing")
    void theSecondAllocationChangesNothing() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(11, 3, 2);
        var request = pair.want(tokens, pair.make(tokens));
        pair.load(request);
        int before = pair.consumer.completions().size();
        pair.consumer.prefill(
                request, 2); // the first of these steps is preceded by the second allocation
        for (int i = 0; i < 5; i++) {
            pair.consumer.step();
        }
        assertThat(loadsIn(pair.consumer.completions())).hasSize(before);
        pair.consumer.finish(request, FinishReason.STOP);
        pair.settle();
    }

    private static List<Completion> loadsIn(List<Completion> completions) {
        return completions.stream()
                .filter(completion -> completion.id().direction() == TransferId.Direction.LOAD)
                .toList();
    }

    @Test
    @DisplayName("B12 an idle step has a plan too, and no load is planned twice")
    void plansDrain() {
        var pair = pair();
        var tokens = prompt(12, 3, 2);
        var params = pair.make(tokens);
        if (loads()) {
            var request = pair.want(tokens, params);
            pair.load(request);
            for (int i = 0; i < 10; i++) {
                pair.consumer.step();
            }
            // A composite may load from a second child what the first did not deliver.
            assertThat(loadsIn(pair.consumer.completions()))
                    .as("completions of loads on one rank, one each")
                    .isNotEmpty()
                    .extracting(Completion::id)
                    .doesNotHaveDuplicates();
            pair.consumer.finish(request, FinishReason.ABORT);
            pair.settle();
        }
        pair.consumer.settle(limit());
        pair.consumer.step();
        assertThat(pair.consumer.lastPlan())
                .as("the plan when there is nothing to say")
                .isEqualTo(Payload.EMPTY);
    }

    @Test
    @DisplayName("B13 building a plan leaves the engine's state as it was")
    void buildingAPlanChangesNothingOfTheEngine() {
        var harness = producer(shape());
        var request = harness.submit("r", prompt(13, 4, 1));
        harness.admit(request);
        var blocks = request.blocks(0);
        int free = harness.freeBlocks();
        harness.schedule(request, 6);
        harness.step(); // views are read-only and die with the call; the harness watches
        assertThat(request.blocks(0)).isEqualTo(blocks);
        assertThat(harness.freeBlocks()).isEqualTo(free);
        assertThat(request.computed()).isEqualTo(6);
        harness.finish(request, FinishReason.ABORT);
        harness.settle(limit());
    }

    @Test
    @DisplayName(
            "B14 plans are bytes: damaged ones and those of another version are refused, nothing is touched")
    void refusesDamagedPlans() {
        var pair = pair();
        var tokens = prompt(14, 3, 2);
        var params = pair.make(tokens);
        var plan = aPlan(pair, tokens, params);
        if (plan.isEmpty()) {
            neverHits(); // a connector that never plans anything
            return;
        }
        var other = consumer(shape());
        var bytes = plan.bytes();
        refuses(
                other,
                new Payload(plan.version() + 1 & 0xffff, bytes.clone()),
                "of another version",
                Set.of(ErrorCode.INCOMPATIBLE));
        for (int cut = 1; cut < bytes.length; cut += Math.max(1, bytes.length / 16)) {
            refuses(
                    other,
                    new Payload(plan.version(), Arrays.copyOf(bytes, cut)),
                    "cut to " + cut + " bytes",
                    DAMAGED);
        }
        refuses(
                other,
                new Payload(plan.version(), Arrays.copyOf(bytes, bytes.length + 3)),
                "with bytes to spare",
                DAMAGED);
        other.checkMemory();
        pair.settle();
    }

    private Payload aPlan(Pair pair, int[] tokens, TransferParams params) {
        var harness = pair.consumer;
        var request = loads() ? pair.want(tokens, params) : harness.submit("r", tokens);
        harness.allocate(request, 0, loads() ? pair.awaitHit(request, 0) : LookupResult.MISS);
        if (request.state() == HarnessRequest.State.RUNNING) {
            harness.schedule(request, tokens.length);
        }
        harness.step();
        var plan = harness.lastPlan();
        if (loads()) {
            pair.awaitLoadStepping(request);
        }
        harness.finish(request, FinishReason.ABORT);
        return plan;
    }

    private static void refuses(
            ConnectorHarness harness, Payload plan, String how, Set<ErrorCode> codes) {
        var step = new WorkerStep(1, plan, List.of(), false, Deadline.in(Patience.STEP_LIMIT));
        try {
            harness.workers().getFirst().beginStep(step);
        } catch (KvFerryException e) {
            assertThat(e.code()).as("refusal of a plan " + how).isIn(codes);
            return;
        }
        fail("a plan %s was taken", how);
    }

    @Test
    @DisplayName("B15 after a preemption the new blocks replace the old ones")
    void newBlocksReplaceOldOnesAfterAPreemption() {
        var pair = pair();
        var tokens = prompt(15, 4, 2);
        var params = handsOff() ? producerParams() : TransferParams.EMPTY;
        var request = pair.producer.submit("preempted", tokens, "", params);
        pair.producer.admit(request);
        pair.producer.schedule(request, tokens.length / 2);
        pair.producer.step();
        pair.producer.preempt(request);
        pair.producer.step();
        pair.producer.admit(request);
        if (request.state() == HarnessRequest.State.LOADING) {
            pair.producer.awaitLoad(request, limit());
        }
        pair.producer.prefill(request, 5);
        pair.producer.generate(request, 7);
        var out = JsonShape.copy(pair.producer.finish(request, FinishReason.LENGTH).params());
        pair.producer.step();
        if (loads()) {
            pair.fetch(tokens, out);
        }
        pair.settle();
    }

    @Test
    @DisplayName("B16 a prompt computed in chunks is saved whole, every block once")
    void chunksAreSavedOnce() {
        var pair = pair();
        var tokens = prompt(16, 5, 3);
        var params = pair.make(tokens, 3);
        if (loads()) {
            int loaded = pair.fetch(tokens, params);
            assertThat(loaded).isGreaterThanOrEqualTo(5 * shape().blockTokens());
        }
        pair.settle();
        var stored =
                new HashMap<
                        List<Object>,
                        Integer>(); // by place and block: a composite stores in several places
        for (var event : pair.producer.events()) {
            if (event instanceof CacheEvent.Stored added) {
                added.blocks()
                        .forEach(hash ->
                                stored.merge(List.of(added.source(), hash), 1, Integer::sum));
            }
        }
        assertThat(stored.values())
                .as("how often each block was stored")
                .allMatch(times -> times == 1);
        if (!has(Feature.EVENTS)) {
            assertThat(stored).as("events that are not claimed").isEmpty();
        }
    }
}
