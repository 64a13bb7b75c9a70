// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.Map;
import java.util.function.Supplier;

/// An illegal answer or exception of a child affects only that child.
class IllegalAnswersTest {
    private final ScriptedConnector bad =
            new ScriptedConnector("A", ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD));
    private final ScriptedConnector good =
            new ScriptedConnector("B", ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD));
    private final Rig.Request request = new Rig.Request("r", 40);

    private Rig rig(String policy) {
        return new Rig(1, Rig.multi("\"load_policy\": \"" + policy + "\",", "A", "B"), bad, good);
    }

    private static FinishDecision.Hold hold() {
        return new FinishDecision.Hold(
                TransferId.save("r", 0),
                Deadline.in(Duration.ofSeconds(9)),
                new TransferParams(Map.of("k", 1L)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"null", "error", "assertion", "overflow"})
    void keepsTheHoldOfAChildWhateverAnotherDoesInFinish(String how) {
        bad.onFinish((_, _) -> misbehave(how));
        good.onFinish((_, _) -> hold());
        try (var rig = rig("first-hit")) {
            rig.scheduler.onRequest(request);
            var decision = rig.scheduler.finish(request, request.blocks(), FinishReason.STOP);

            assertThat(decision).isInstanceOf(FinishDecision.Hold.class);
            assertThat(decision.params().values()).isEqualTo(Map.of("k", 1L));
            good.complete(TransferId.save("r", 0), 0, new Completion.Completed(1));
            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(((FinishDecision.Hold) decision).id());
        }
    }

    @SuppressWarnings("NullAway") // what the contract forbids
    private static FinishDecision misbehave(String how) {
        Supplier<FinishDecision> answer =
                switch (how) {
                    case "null" -> () -> null;
                    case "error" ->
                            () -> {
                                throw new NoClassDefFoundError("injected");
                            };
                    case "assertion" ->
                            () -> {
                                throw new AssertionError("injected");
                            };
                    default ->
                            () -> {
                                throw new StackOverflowError("injected");
                            };
                };
        return answer.get();
    }

    /// An overflow, a reach beyond the request, an end within a block, and a mode not claimed.
    @ParameterizedTest
    @CsvSource({
        "first-hit, 2147483647, ASYNC", "first-hit, 41, ASYNC", "first-hit, 33, ASYNC",
        "first-hit, 32, SYNC", "longest-hit, 2147483647, ASYNC", "longest-hit, 33, ASYNC",
        "longest-hit, 32, SYNC", "compose, 2147483647, ASYNC", "compose, 3, ASYNC"
    })
    void takesTheHitOfAChildWhenAnotherAnswersAnIllegalOne(
            String policy, int tokens, LoadMode mode) {
        bad.onLookup((_, _) -> LookupResult.hit(tokens, mode, "A", Tier.HOST));
        good.onLookup((_, local) -> LookupResult.hit(20 - local, LoadMode.ASYNC, "B", Tier.HOST));
        try (var rig = rig(policy)) {
            rig.scheduler.onRequest(request);
            assertThat(rig.scheduler.lookup(request, 4))
                    .isEqualTo(LookupResult.hit(16, LoadMode.ASYNC, "B", Tier.HOST));
        }
    }

    @Test
    void takesAnErrorInALookupAsAMiss() {
        bad.onLookup((_, _) -> {
            throw new NoClassDefFoundError("injected");
        });
        good.onLookup((_, local) -> LookupResult.hit(16 - local, LoadMode.ASYNC, "B", Tier.HOST));
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);
            assertThat(load.toToken()).isEqualTo(16);
            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(load.id());
        }
    }
}
