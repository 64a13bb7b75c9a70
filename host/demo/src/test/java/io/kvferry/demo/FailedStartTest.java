// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.cli.Progress;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

class FailedStartTest {
    @Test
    void theReferenceRunEndsWhenTheProcessesDidNotStart() {
        var told = new AtomicInteger();
        var start = new CompletableFuture<Void>();
        var progress =
                Demo.unlessFailed(
                        start,
                        new Progress() {
                            @Override
                            public void phase(String what) {}

                            @Override
                            public void advance(int done, int total) {
                                told.set(done);
                            }
                        });
        progress.advance(1, 20);
        assertThat(told).hasValue(1);
        var failure = new KvFerryException(ErrorCode.BAD_CONFIG, "prefill did not start");
        start.completeExceptionally(failure);
        assertThatThrownBy(() -> progress.advance(2, 20)).isSameAs(failure);
        assertThat(told).hasValue(1);
    }
}
