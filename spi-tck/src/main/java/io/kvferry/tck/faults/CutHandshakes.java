// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcWorkerConnector;
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
                    return result instanceof WorkerConnector half
                            ? wrap(WorkerConnector.class, half, quarters)
                            : result;
                });
    }

    /// The same for the encoder cache.
    public static EcConnectorProvider wrap(EcConnectorProvider provider, int quarters) {
        return Interceptor.wrap(
                EcConnectorProvider.class,
                provider,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof EcWorkerConnector half
                            ? wrap(EcWorkerConnector.class, half, quarters)
                            : result;
                });
    }

    private static <W> W wrap(Class<W> type, W half, int quarters) {
        return Interceptor.wrap(
                type,
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
