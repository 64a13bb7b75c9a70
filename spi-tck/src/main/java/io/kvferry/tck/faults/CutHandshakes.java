// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.wire.Payload;

import java.util.Arrays;

/// Wraps a provider so that the handshakes of its worker halves arrive cut.
public final class CutHandshakes {
    private CutHandshakes() {}

    /// @param quarters of each handshake that are left
    public static KvConnectorProvider wrap(KvConnectorProvider provider, int quarters) {
        return Interceptor.wrap(
                KvConnectorProvider.class,
                provider,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof WorkerConnector half ? wrap(half, quarters) : result;
                });
    }

    private static WorkerConnector wrap(WorkerConnector half, int quarters) {
        return Interceptor.wrap(
                WorkerConnector.class,
                half,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof Payload payload && !payload.isEmpty()
                            ? cut(payload, quarters)
                            : result;
                });
    }

    private static Payload cut(Payload payload, int quarters) {
        int left = Math.max(1, payload.bytes().length * quarters / 4);
        return new Payload(payload.version(), Arrays.copyOf(payload.bytes(), left));
    }
}
