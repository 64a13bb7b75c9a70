// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.LoadFailurePolicy;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;

/// The request at the head of the queue lacks blocks, while others give theirs back one by one.
class BlockedHeadTest extends ConnectedEngine {
    /// After this time a lookup is repeated, however few blocks are free.
    private static final Duration RETRY = Duration.ofMillis(10);

    private static final int OTHERS = 14;

    /// @param known blocks of the head's prompt that the prefix cache has, in free blocks
    @ParameterizedTest
    @ValueSource(ints = {0, 2})
    void isNotLookedUpAfterEveryBlockThatBecomesFree(int known) {
        kv.load = false;
        kv.save = false;
        try (var engine =
                Engine.open(
                        with(kv, LoadFailurePolicy.RECOMPUTE).stepTokens(1000).maxRunning(64))) {
            var head = prompt(1, 4 * BLOCKS - 20);
            run(engine, request(java.util.Arrays.copyOf(head, 4 * known + 1), 1));
            var others = new ArrayList<RequestHandle>();
            for (int i = 0; i < OTHERS; i++) {
                others.add(engine.submit(request(prompt(100 + i, 10), 1 + i)));
            }
            engine.step();
            assertThat(engine.stats().running()).isEqualTo(OTHERS - 1); // one has ended
            var blocked = engine.submit(request(head, 5));
            kv.calls.clear();
            long begin = System.nanoTime();
            int freed = 0;
            while (engine.stats().running() > 1) {
                int running = engine.stats().running();
                engine.step();
                freed += running - engine.stats().running();
            }
            long elapsed = System.nanoTime() - begin;
            assertThat(freed).isGreaterThan(8);
            assertThat(calls("lookup " + blocked.id()))
                    .as("in %d us", elapsed / 1000)
                    .hasSizeLessThanOrEqualTo(2 + (int) (elapsed / RETRY.toNanos()));
            var outcome = (Outcome.Finished) outcome(engine, blocked);
            assertThat(outcome.tokens()).isEqualTo(reference(head, 5));
            others.forEach(each -> assertThat(each.await(Deadline.in(Duration.ZERO))).isPresent());
            assertEmpty(engine);
        }
    }
}
