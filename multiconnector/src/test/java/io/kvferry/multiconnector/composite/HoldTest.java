// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/// Finishing a request: holds are counted over children, params are merged.
class HoldTest {
    private static final TransferId HOLD = TransferId.save("r", 0);

    private final List<ScriptedConnector> children = List.of(child("A"), child("B"), child("C"));
    private final Rig.Request request = new Rig.Request("r", 40);

    private static ScriptedConnector child(String name) {
        return new ScriptedConnector(name, ConnectorCapabilities.of(Feature.HOLD, Feature.SAVE));
    }

    private Rig rig(int ranks, String options) {
        return new Rig(
                ranks,
                Rig.multi(options, "A", "B", "C"),
                children.toArray(ScriptedConnector[]::new));
    }

    private void holds(int child, Duration limit, Map<String, Object> params) {
        // All children choose the same id: it is the composite's affair to keep them apart.
        children.get(child)
                .onFinish((view, _) ->
                        new FinishDecision.Hold(
                                TransferId.save(view.id(), 0),
                                Deadline.in(limit),
                                new TransferParams(params)));
    }

    private void answers(int child, Map<String, Object> params) {
        children.get(child)
                .onFinish((_, _) -> new FinishDecision.Release(new TransferParams(params)));
    }

    private FinishDecision finish(Rig rig) {
        rig.scheduler.onRequest(request);
        return rig.scheduler.finish(request, request.blocks(), FinishReason.LENGTH);
    }

    /// Every set of holders, and every order in which (child, rank) pairs can complete.
    static Stream<List<Integer>> completionOrders() {
        var orders = new ArrayList<List<Integer>>();
        for (int set = 0; set < 8; set++) {
            var events = new ArrayList<Integer>();
            for (int child = 0; child < 3; child++) {
                if ((set >> child & 1) == 1) {
                    events.add(child * 2);
                    events.add(child * 2 + 1);
                }
            }
            permute(events, new ArrayList<>(), orders);
        }
        return orders.stream();
    }

    private static void permute(
            List<Integer> left, List<Integer> chosen, List<List<Integer>> orders) {
        if (left.isEmpty()) {
            orders.add(List.copyOf(chosen));
        }
        for (var next : left) {
            var rest = new ArrayList<>(left);
            rest.remove((Object) next);
            chosen.add(next);
            permute(rest, chosen, orders);
            chosen.removeLast();
        }
    }

    @Test
    void endsAHoldWithItsLastHolderInWhateverOrderTheyEnd() {
        completionOrders()
                .forEach(order -> {
                    for (int child = 0; child < 3; child++) {
                        if (order.contains(child * 2)) {
                            holds(child, Duration.ofSeconds(10 + child), Map.of());
                        } else {
                            answers(child, Map.of());
                        }
                    }
                    try (var rig = rig(2, "")) {
                        var decision = finish(rig);
                        if (order.isEmpty()) {
                            assertThat(decision).isEqualTo(FinishDecision.RELEASE);
                            return;
                        }
                        var id = ((FinishDecision.Hold) decision).id();
                        assertThat(id.forChild("")).isEqualTo(HOLD);
                        for (int i = 0; i < order.size(); i++) {
                            int child = order.get(i) / 2;
                            children.get(child)
                                    .complete(HOLD, order.get(i) % 2, new Completion.Completed(5));
                            var ended = rig.step().completions();
                            if (i < order.size() - 1) {
                                assertThat(ended).as("order %s, after %d", order, i).isEmpty();
                            } else {
                                assertThat(ended)
                                        .as("order %s", order)
                                        .containsExactly(
                                                new Completion(
                                                        id,
                                                        Completion.ALL_RANKS,
                                                        new Completion.Completed(
                                                                5L * order.size())));
                            }
                        }
                    }
                });
    }

    @Test
    void doesNotWaitForAHoldThatEndedBeforeFinish() {
        holds(0, Duration.ofSeconds(9), Map.of());
        holds(1, Duration.ofSeconds(9), Map.of());
        holds(2, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            completeEverywhere(0);
            rig.step();
            finish(rig);
            completeEverywhere(1);
            assertThat(rig.step().completions()).isEmpty();
            completeEverywhere(2);

            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    HOLD, Completion.ALL_RANKS, new Completion.Completed(20)));
        }
    }

    @Test
    void holdsForTheOtherAloneWhenOneOfTwoEndedBeforeFinish() {
        holds(0, Duration.ofSeconds(9), Map.of("a", 1L));
        holds(1, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            completeEverywhere(0);
            rig.step();
            var hold = (FinishDecision.Hold) finish(rig);
            assertThat(hold.params().values()).isEqualTo(Map.of("a", 1L));
            completeEverywhere(1);

            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(hold.id());
        }
    }

    @Test
    void releasesWhenAllHoldsEndedBeforeFinish() {
        holds(0, Duration.ofSeconds(9), Map.of("a", 1L));
        holds(1, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            completeEverywhere(0);
            completeEverywhere(1);
            rig.step();

            assertThat(finish(rig))
                    .isEqualTo(new FinishDecision.Release(new TransferParams(Map.of("a", 1L))));
        }
    }

    @Test
    void endsAHoldThatSomeRanksEndedBeforeFinish() {
        holds(0, Duration.ofSeconds(9), Map.of());
        holds(1, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            children.get(0).complete(HOLD, 1, new Completion.Completed(5));
            rig.step();
            finish(rig);
            children.get(0).complete(HOLD, 0, new Completion.Completed(5));
            completeEverywhere(1);

            assertThat(rig.step().completions()).extracting(Completion::id).containsExactly(HOLD);
            assertThat(rig.unfinishedMerges()).isZero();
        }
    }

    private void completeEverywhere(int child) {
        children.get(child).complete(HOLD, 0, new Completion.Completed(5));
        children.get(child).complete(HOLD, 1, new Completion.Completed(5));
    }

    @Test
    void holdsUntilTheLatestDeadline() {
        holds(0, Duration.ofSeconds(100), Map.of());
        holds(1, Duration.ofSeconds(5), Map.of());
        try (var rig = rig(1, "")) {
            var hold = (FinishDecision.Hold) finish(rig);

            assertThat(hold.deadline().remaining())
                    .isBetween(Duration.ofSeconds(90), Duration.ofSeconds(100));
        }
    }

    @Test
    void endsAHoldAsFailedWhenOneHolderFails() {
        holds(0, Duration.ofSeconds(9), Map.of());
        holds(1, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(1, "")) {
            finish(rig);
            children.get(0)
                    .complete(
                            HOLD,
                            0,
                            new Completion.Failed(
                                    new Failure(ErrorCode.PEER_LOST, "gone"), List.of()));
            children.get(1).complete(HOLD, 0, new Completion.Completed(5));

            assertThat(rig.step().completions())
                    .singleElement()
                    .extracting(Completion::result)
                    .isInstanceOf(Completion.Failed.class);
        }
    }

    @Test
    void revokesAtTheChildrenThatStillHold() {
        holds(0, Duration.ofSeconds(9), Map.of());
        holds(2, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            finish(rig);
            rig.step();
            children.get(0).complete(HOLD, 0, new Completion.Completed(0));
            children.get(0).complete(HOLD, 1, new Completion.Completed(0));
            rig.step();

            rig.revoke(HOLD);
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(HOLD, Completion.ALL_RANKS, new Completion.Revoked()));
            assertThat(children.get(0).revoked()).isEmpty();
            assertThat(children.get(2).revoked()).containsExactly(HOLD);
            assertThat(rig.unfinishedMerges()).isZero();
        }
    }

    @Test
    void revokesAcrossRanksOfWhichOneHasEndedAlready() {
        holds(0, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(2, "")) {
            var hold = (FinishDecision.Hold) finish(rig);
            children.get(0).complete(HOLD, 0, new Completion.Completed(0));
            rig.step();
            rig.revoke(hold.id());

            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    hold.id(), Completion.ALL_RANKS, new Completion.Revoked()));
            assertThat(rig.unfinishedMerges()).isZero();
        }
    }

    @Test
    void showsNoBlocksOfAnUnfinishedLoadToWhoeverMightSendThem() {
        var seen = new ArrayList<Integer>();
        children.get(0)
                .onLookup((_, local) ->
                        LookupResult.hit(
                                8 - local,
                                LookupResult.LoadMode.ASYNC,
                                "A",
                                LookupResult.Tier.DISK));
        children.get(0).loadReady((_, _) -> false);
        try (var rig = rig(1, "")) {
            rig.admit(request, 0);
            rig.scheduler.finish(request, new Spy(request.blocks(), seen), FinishReason.ABORT);
            assertThat(seen).isEmpty();
        }
    }

    /// A table that notes who looks into it.
    private record Spy(BlockTable whole, List<Integer> seen) implements BlockTable {
        @Override
        public int groups() {
            seen.add(-1);
            return whole.groups();
        }

        @Override
        public int count(int group) {
            seen.add(-1);
            return whole.count(group);
        }

        @Override
        public int block(int group, int position) {
            seen.add(position);
            return whole.block(group, position);
        }
    }

    @Test
    void mergesParamsFlatAsVllmDoes() {
        answers(0, Map.of("remote_host", "h", "remote_port", 1L));
        answers(2, Map.of("key", "k", "remote_port", 1L));
        try (var rig = rig(1, "")) {
            assertThat(finish(rig).params().values())
                    .isEqualTo(Map.of("remote_host", "h", "remote_port", 1L, "key", "k"));
        }
    }

    @Test
    void keepsBothSidesOfAParamsClashReadableAndEveryChildFinished() {
        holds(0, Duration.ofSeconds(9), Map.of("remote_port", 1L, "a", true));
        holds(1, Duration.ofSeconds(9), Map.of("remote_port", 2L));
        answers(2, Map.of("c", "x"));
        try (var rig = rig(1, "")) {
            var decision = finish(rig);

            assertThat(decision).isInstanceOf(FinishDecision.Hold.class);
            assertThat(decision.params().values())
                    .isEqualTo(
                            Map.of(
                                    "remote_port",
                                    1L,
                                    "a",
                                    true,
                                    "c",
                                    "x",
                                    "A",
                                    Map.of("remote_port", 1L, "a", true),
                                    "B",
                                    Map.of("remote_port", 2L)));
            assertThat(children).allMatch(child -> child.finished().equals(List.of("r")));

            // What went out comes back in, and each child reads its own.
            var seen = lookups(rig, decision.params());
            assertThat(seen.get(0).integer("remote_port")).contains(1L);
            assertThat(seen.get(1).integer("remote_port")).contains(2L);
            assertThat(seen.get(1).string("c")).contains("x");
            assertThat(seen.get(1).values()).doesNotContainKey("A");
        }
    }

    @Test
    void writesNamespacesWhenAskedTo() {
        answers(0, Map.of("remote_port", 1L));
        answers(1, Map.of("remote_port", 2L));
        try (var rig = rig(1, "\"params_form\": \"namespaced\",")) {
            assertThat(finish(rig).params().values())
                    .isEqualTo(
                            Map.of("A", Map.of("remote_port", 1L), "B", Map.of("remote_port", 2L)));
        }
    }

    @Test
    void showsFlatParamsToEveryChild() {
        try (var rig = rig(1, "")) {
            assertThat(lookups(rig, new TransferParams(Map.of("do_remote_prefill", true))))
                    .allMatch(params -> params.flag("do_remote_prefill"));
        }
    }

    @Test
    void takesWhatIsNoObjectUnderAChildsNameForAFlatKey() {
        var values = Map.<String, Object>of("A", "a client's text", "B", 2L, "x", true);
        try (var rig = rig(1, "")) {
            assertThat(lookups(rig, new TransferParams(values)))
                    .hasSize(3)
                    .allMatch(params -> params.values().equals(values));
        }
    }

    @Test
    void showsATextUnderAChildsNameToAllBesideTheNamespaceOfAnother() {
        var values = Map.<String, Object>of("A", "a client's text", "B", Map.of("y", 1L));
        try (var rig = rig(1, "")) {
            var seen = lookups(rig, new TransferParams(values));
            assertThat(seen.get(0).values()).isEqualTo(Map.of("A", "a client's text"));
            assertThat(seen.get(1).values()).isEqualTo(Map.of("A", "a client's text", "y", 1L));
            assertThat(seen.get(2).values()).isEqualTo(Map.of("A", "a client's text"));
        }
    }

    private List<TransferParams> lookups(Rig rig, TransferParams params) {
        var seen = new ArrayList<TransferParams>();
        for (var child : children) {
            child.onLookup((view, _) -> {
                seen.add(view.params());
                return LookupResult.MISS;
            });
        }
        rig.scheduler.lookup(new Rig.Request("r2", 40, params, 0), 0);
        return seen;
    }

    @Test
    void finishesTheOthersWhenAChildThrows() {
        children.get(0)
                .onFinish((_, _) -> {
                    throw new IllegalStateException("boom");
                });
        holds(1, Duration.ofSeconds(9), Map.of());
        try (var rig = rig(1, "")) {
            assertThat(finish(rig)).isInstanceOf(FinishDecision.Hold.class);
            assertThat(children.get(2).finished()).containsExactly("r");
        }
    }

    @ParameterizedTest
    @MethodSource("reasons")
    void tellsEveryChildOnce(FinishReason reason) {
        try (var rig = rig(1, "")) {
            rig.scheduler.onRequest(request);
            rig.scheduler.finish(request, BlockTable.EMPTY, reason);

            assertThat(children).allMatch(child -> child.finished().equals(List.of("r")));
        }
    }

    static Stream<FinishReason> reasons() {
        return Stream.of(FinishReason.values());
    }
}
