// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.engine.RequestHandle;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/// Two ranks of each engine, on a data plane that breaks transfers off at random moments on either
/// side, with requests in random order and room for some of the pushes: the tokens are those of one
/// engine alone, the model verifies every byte, and nothing stays behind, long before any time
/// limit.
class ChaosTest {
    private static final int SHORT = 30;
    private static final int LONG = 1000;

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "PUT", "GET"})
    void brokenTransfersCostNoToken(String mode) throws IOException {
        run(mode, SHORT);
    }

    @ParameterizedTest
    @ValueSource(strings = {"PUT_ASYNC", "PUT", "GET"})
    @Tag("soak")
    @Timeout(900)
    void manyBrokenTransfersCostNoToken(String mode) throws IOException {
        run(mode, LONG);
    }

    private static void run(String mode, int requests) throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        int pPort = freePorts(2);
        int dPort = freePorts(2);
        var pOptions = options(mode, pPort);
        var dOptions = options(mode, dPort);
        var provider = new Breaking(seed);
        var expected = new HashMap<Integer, List<Integer>>();
        try (var pool = new BuddyStagingPool(4 << 20);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER, 2, pOptions, P2pEngines.host(pool), provider);
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER, 2, dOptions, P2pEngines.host(pool), provider)) {
            int done = 0;
            int loaded = 0;
            while (done < requests) {
                var decoded = new ArrayList<RequestHandle>();
                var prompts = new ArrayList<Integer>();
                for (int i = random.nextInt(1, 6); i > 0; i--, done++) {
                    int which = random.nextInt(12);
                    int[] prompt = prompt(which, 40 + 20 * which);
                    expected.computeIfAbsent(which, _ -> tokensAlone(alone, prompt));
                    int known = random.nextInt(3) == 0 ? 0 : dPort;
                    boolean prefillFirst = random.nextBoolean();
                    if (prefillFirst) {
                        prefill(p, prompt, "x" + done, known);
                        LockSupport.parkNanos(random.nextInt(4) * 1_000_000L);
                    }
                    decoded.add(decode(d, prompt, "x" + done, pPort));
                    prompts.add(which);
                    if (!prefillFirst) {
                        LockSupport.parkNanos(random.nextInt(4) * 1_000_000L);
                        prefill(p, prompt, "x" + done, known);
                    }
                }
                for (int i = 0; i < decoded.size(); i++) {
                    var outcome = finished(decoded.get(i));
                    assertThat(tokens(outcome))
                            .as("seed %d", seed)
                            .isEqualTo(expected.get(prompts.get(i)));
                    loaded += loaded(outcome) > 0 ? 1 : 0;
                }
            }
            assertThat(loaded).as("hand-overs of %d, seed %d", requests, seed).isPositive();
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// The product on a plane that breaks.
    private static final class Breaking extends AlteredP2p {
        private final long seed;

        Breaking(long seed) {
            this.seed = seed;
        }

        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            var plane = HostPlane.open("chaos", "127.0.0.1", "127.0.0.1", HostPlane.Ways.ANY);
            return new P2pWorker(context, new BreakingPlane(plane, seed + context.rank().rank()));
        }
    }
}
