// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;

/// A store in an owner process is not asked again at once: what it said before a reset must not
/// count after it.
class ResetOverOwnerTest {
    private static final Duration LIMIT = Duration.ofSeconds(30);

    @Test
    void whatWasFoundBeforeAResetIsAMissAfterItAndIsSavedAgain() {
        var settings =
                new StoreOwner.Settings(
                        "127.0.0.1",
                        0,
                        64 << 20,
                        StoreConfig.DEFAULT,
                        Duration.ofSeconds(60),
                        Optional.empty(),
                        false);
        try (var owner = StoreOwner.start(settings);
                var engine =
                        ConnectorHarness.open(
                                new MooncakeStoreConnectorProvider(),
                                KvRole.BOTH,
                                "e",
                                Map.of("store", owner.address()),
                                HarnessShape.small())) {
            var tokens = new int[6 * HarnessShape.small().blockTokens() + 1];
            Arrays.setAll(tokens, i -> 1 + i);
            var first = engine.submit("first", tokens);
            engine.admit(first);
            engine.prefill(first, 100);
            engine.finish(first, FinishReason.STOP);
            engine.settle(LIMIT);
            var waiting = engine.submit("waiting", tokens);
            assertThat(engine.lookupSettled(waiting, 0, LIMIT))
                    .isInstanceOf(LookupResult.Hit.class);
            var reset = engine.scheduler().resetCache(Deadline.in(LIMIT)).toCompletableFuture();
            engine.stepUntil("the end of the reset", LIMIT, reset::isDone);
            assertThat(reset.join()).isTrue();
            assertThat(engine.lookupSettled(waiting, 0, LIMIT))
                    .isInstanceOf(LookupResult.Miss.class);
            engine.admit(waiting);
            engine.prefill(waiting, 100);
            engine.finish(waiting, FinishReason.STOP);
            engine.settle(LIMIT);
            var last = engine.submit("last", tokens);
            assertThat(engine.lookupSettled(last, 0, LIMIT)).isInstanceOf(LookupResult.Hit.class);
            engine.finish(last, FinishReason.ABORT);
            engine.settle(LIMIT);
        }
    }
}
