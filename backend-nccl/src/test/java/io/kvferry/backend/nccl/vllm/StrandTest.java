// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

class StrandTest {
    /// A refused task has been reported to a peer as refused, so it must not run later.
    @Test
    void whatThereIsNoThreadForIsNotTaken() throws Exception {
        var scarce = new AtomicBoolean(true);
        ThreadFactory threads =
                work -> {
                    if (scarce.get()) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    return Thread.ofVirtual().unstarted(work);
                };
        var strand = new Strand("test", 2, threads);
        var run = new CopyOnWriteArrayList<String>();
        var done = new CountDownLatch(1);
        assertThat(strand.offer(() -> run.add("refused"))).isFalse();
        scarce.set(false);
        boolean taken =
                strand.offer(() -> {
                    run.add("taken");
                    done.countDown();
                });
        assertThat(taken).isTrue();
        assertThat(done.await(50, TimeUnit.SECONDS)).isTrue();
        assertThat(run).isEqualTo(List.of("taken"));
    }
}
