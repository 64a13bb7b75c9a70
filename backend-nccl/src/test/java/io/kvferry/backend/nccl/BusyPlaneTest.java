// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.atomic.AtomicInteger;

/// A data plane whose threads still use blocks when it is closed: the worker half is not closed
/// before the plane says that they do not any more, however often it is asked.
class BusyPlaneTest {
    private static final int REFUSALS = 2;

    /// The product on a plane that cannot be closed at first.
    private static final class Busy extends AlteredP2p {
        final AtomicInteger closed = new AtomicInteger();

        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            var real = HostPlane.open("busy", "127.0.0.1", "127.0.0.1", HostPlane.Ways.ANY);
            var plane =
                    (DataPlane)
                            Proxy.newProxyInstance(
                                    DataPlane.class.getClassLoader(),
                                    new Class<?>[] {DataPlane.class},
                                    (_, method, arguments) -> {
                                        if (method.getName().equals("close")
                                                && closed.incrementAndGet() <= REFUSALS) {
                                            throw new KvFerryException(
                                                    ErrorCode.TIMEOUT, "says the test");
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

    @Test
    void isClosedAgainUntilNothingUsesBlocks() throws IOException {
        var kv = new Busy();
        int port = freePorts(1);
        int nobody = freePorts(1);
        try (var p =
                P2pEngines.open(KvRole.PRODUCER, 1, options("GET", port), HostServices.NONE, kv)) {
            prefill(p, prompt(1, TOKENS), "x", nobody);
        }
        assertThat(kv.closed).hasValue(REFUSALS + 1);
    }
}
