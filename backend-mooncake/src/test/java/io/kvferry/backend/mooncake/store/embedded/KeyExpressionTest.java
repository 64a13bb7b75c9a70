// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;

/// Expressions of users that would block the store for all others.
class KeyExpressionTest {
    private static final int LONG_KEY = 64 << 10;

    private final SteppedStore stepped = new SteppedStore();
    private final EmbeddedClient client = stepped.store.client(StoreContract.ONE);

    KeyExpressionTest() {
        stepped.store.mount("a", 1 << 20);
    }

    @AfterEach
    void close() {
        stepped.close();
    }

    private void put(String key) {
        try (var arena = Arena.ofConfined()) {
            var results = new int[1];
            client.put(
                    new StoreBatch().add(key).buffer(arena.allocate(64)),
                    PutOptions.DEFAULT,
                    results);
            assertThat(results[0]).isZero();
        }
    }

    /// With a reference to a group Java remembers nothing of what it has tried.
    @Test
    void oneThatTakesExponentialTimeIsGivenUp() {
        put("a".repeat(60) + "!");
        put("other");
        assertThat(client.removeByRegex("other|((a|aa)+)(c?)\\3b", true))
                .isEqualTo(StoreCode.INVALID_PARAMS.number());
        assertThat(stepped.store.keyCount()).as("nothing is removed then").isEqualTo(2);
    }

    @ParameterizedTest
    @ValueSource(strings = {"(a|b)*c", "(?:(a|b)|(c|d))*e"})
    void oneThatNeedsADeepStackIsGivenUp(String regex) {
        put("a".repeat(LONG_KEY));
        assertThat(client.removeByRegex(regex, true)).isEqualTo(StoreCode.INVALID_PARAMS.number());
        assertThat(client.removeByRegex("(".repeat(LONG_KEY) + ")".repeat(LONG_KEY), true))
                .isEqualTo(StoreCode.INVALID_PARAMS.number());
    }

    @Test
    void longKeysAndManyOfThemAreMatched() {
        put("a".repeat(LONG_KEY) + "b");
        for (int i = 0; i < 2000; i++) {
            put("model@" + i + "@" + "ab".repeat(32));
        }
        assertThat(client.removeByRegex("model@\\d*5@[a-f]+", true)).isEqualTo(200);
        assertThat(client.removeByRegex("a+b", true)).isOne();
    }
}
