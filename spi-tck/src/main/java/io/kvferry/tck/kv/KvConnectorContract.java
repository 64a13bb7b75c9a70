// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.kv.FinishReason;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/// The contract of a KV connector as JUnit tests. Subclass it, say which provider and which
/// options, and where it applies how to damage or stop the store:
///
/// ```
/// class HeapConnectorTckTest extends KvConnectorContract {
///     @Override
///     protected KvConnectorProvider provider() {
///         return new HeapConnectorProvider();
///     }
///
///     @Override
///     protected Map<String, Object> options() {
///         return Map.of("store", "tck-" + UUID.randomUUID());
///     }
/// }
/// ```
///
/// Each test carries the number of the behaviour it checks. Claimed features must work; of features
/// that are not claimed the tests check that they never show. A test that needs a hook which is not
/// overridden is skipped, and says which.
public abstract class KvConnectorContract extends KvExchangeTests {
    private static final long SEED = Long.getLong("kvferry.tck.seed", 20_260_821L);
    private static final int SHORT = 40;
    private static final int LONG = 1000;

    @Test
    @DisplayName("G52a random interleavings of all calls keep the invariants")
    void randomInterleavingsKeepTheInvariants() {
        interleave(SHORT);
    }

    @Test
    @Tag("soak")
    @Timeout(900)
    @DisplayName("G52b a thousand random interleavings of all calls keep the invariants")
    void aThousandInterleavingsKeepTheInvariants() {
        interleave(LONG);
    }

    private void interleave(int rounds) {
        for (int round = 0; round < rounds; round++) {
            long seed = SEED + round;
            var pair = pair();
            try {
                new Interleaving(
                                seed,
                                pair.producer,
                                pair.consumer,
                                producerParams(),
                                handsOff(),
                                limit())
                        .run();
                assertThat(pair.producer.freeBlocks()).isEqualTo(shape().blocks());
                assertThat(pair.consumer.freeBlocks()).isEqualTo(shape().blocks());
            } catch (Throwable e) {
                throw new AssertionError(
                        "interleaving with -Dkvferry.tck.seed=" + seed + ": " + e.getMessage(), e);
            } finally {
                pair.consumer.close();
                pair.producer.close();
            }
        }
        assertThat(FinishReason.values()).as("reasons the interleavings know").hasSize(4);
    }
}
