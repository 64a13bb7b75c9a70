// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class ClosingAsideTest {
    @Test
    void closesOnAnotherThread() throws Exception {
        var closer = new CompletableFuture<Thread>();
        ClosingAside.close(() -> closer.complete(Thread.currentThread()));
        assertThat(closer.get(30, TimeUnit.SECONDS)).isNotEqualTo(Thread.currentThread());
    }

    @Test
    void closesHereWhereNoThreadCanBeHad() {
        var closer = new CompletableFuture<Thread>();
        ClosingAside.close(
                _ -> {
                    throw new OutOfMemoryError("no thread, says the test");
                },
                () -> closer.complete(Thread.currentThread()));
        assertThat(closer).isCompletedWithValue(Thread.currentThread());
    }
}
