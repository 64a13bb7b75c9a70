// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.host;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/// Engines whose data plane has no memory for one transfer: its load ends with an outcome, nothing
/// stays in use, and the next transfer is as any other.
class ThrowingPlaneTest {
    /// The product on a plane that throws once from this method.
    private static final class Throwing extends AlteredP2p {
        private final String throwing;
        private final AtomicBoolean armed = new AtomicBoolean(true);

        Throwing(String method) {
            this.throwing = method;
        }

        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            var real = HostPlane.open("throwing", "127.0.0.1", "127.0.0.1", HostPlane.Ways.ANY);
            var plane =
                    (DataPlane)
                            Proxy.newProxyInstance(
                                    DataPlane.class.getClassLoader(),
                                    new Class<?>[] {DataPlane.class},
                                    (_, method, arguments) -> {
                                        if (method.getName().equals(throwing)
                                                && armed.getAndSet(false)) {
                                            throw new OutOfMemoryError("says the test");
                                        }
                                        try {
                                            return method.invoke(real, arguments);
                                        } catch (InvocationTargetException e) {
                                            throw e.getCause();
                                        }
                                    });
            return new P2pWorker(context, plane);
        }
    }

    @ParameterizedTest
    @CsvSource({"GET,receive,0", "GET,send,0", "PUT_ASYNC,receive,149", "PUT_ASYNC,send,149"})
    void costsOneTransferAtMost(String mode, String method, int loadedAtLeast) throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var kv = new Throwing(method);
        try (var pool = new BuddyStagingPool(64 << 20);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER, 1, unlimited(mode, pPort), HostServices.NONE, kv);
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER, 1, unlimited(mode, dPort), host(pool), kv)) {
            for (int i = 0; i < 2; i++) {
                int[] prompt = prompt(i, TOKENS);
                finished(prefill(p, prompt, "x" + i, dPort));
                var outcome = finished(decode(d, prompt, "x" + i, pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(i == 0 ? loadedAtLeast : 149);
            }
            assertThat(kv.armed).isFalse();
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// No limit of a transfer passes in the test: a failure is told when it happens.
    private static Map<String, Object> unlimited(String mode, int port) {
        var options = options(mode, port);
        options.put("push_timeout", "10m");
        options.put("transfer_timeout", "10m");
        options.put("receive_timeout", "10m");
        return options;
    }
}
