// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;

class CallersTest {
    private static final String IDENTITY = "127.0.0.1:9";
    private static final int ROUNDS = 5_000;

    private static SideChannel.Asker asker() {
        return new SideChannel.Asker() {
            @Override
            public boolean answer(byte[] message) {
                return true;
            }

            @Override
            public String identity() {
                return IDENTITY;
            }
        };
    }

    /// vLLM says NEW once: a peer whose new communicator ended with its old connection could never
    /// be served again.
    @Test
    void theEndOfAnOldConnectionLeavesThePeerThatHasConnectedAnew() throws Exception {
        var nccl = NcclDouble.load();
        nccl.reset();
        var limits =
                new TensorLanes.Limits(Duration.ofSeconds(50), Duration.ofSeconds(50), 1 << 20, 0);
        try (var lanes = new TensorLanes("lanes", nccl.library(), nccl.driver(), limits);
                var lane = lanes.open("peer", lanes.uniqueId(), 1)) {
            var callers = new Callers();
            var anew = new Failure(ErrorCode.PEER_LOST, "anew, says the test");
            for (int round = 0; round < ROUNDS; round++) {
                var old = asker();
                assertThat(callers.put(new Callers.Caller(IDENTITY, lane, old), anew)).isTrue();
                var start = new CyclicBarrier(2);
                var gone =
                        Thread.ofPlatform()
                                .start(() -> {
                                    meet(start);
                                    var _ = callers.gone(old);
                                });
                var next = new Callers.Caller(IDENTITY, lane, asker());
                meet(start);
                assertThat(callers.put(next, anew)).isTrue();
                gone.join();
                assertThat(callers.find(asker())).as("round %d", round).isSameAs(next);
            }
            callers.close();
        }
        nccl.assertClean();
    }

    private static void meet(CyclicBarrier barrier) {
        try {
            var _ = barrier.await(50, TimeUnit.SECONDS);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }
}
