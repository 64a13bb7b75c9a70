// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.nativeengine.TransferEngineDouble;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.BeforeAll;

import java.nio.file.Path;
import java.util.Map;

/// MOONCAKE over the native engine keeps the contract of transfer backends, with a C double as the
/// library.
@SuppressWarnings("NullAway.Init")
class NativeTransferContractTest extends TransferBackendContract {
    private static Path library;

    @BeforeAll
    static void compile() {
        library = TransferEngineDouble.compile();
    }

    @Override
    protected TransferBackendProvider provider() {
        return new MooncakeTransferProvider();
    }

    @Override
    protected Map<String, Object> options(String agent) {
        return Map.of("engine", "native", "library", library.toString());
    }
}
