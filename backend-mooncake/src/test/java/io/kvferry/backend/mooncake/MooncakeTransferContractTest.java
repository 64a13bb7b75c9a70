// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.BeforeAll;

import java.time.Duration;
import java.util.Map;

/// MOONCAKE over the pure-Java engine keeps the contract of transfer backends.
class MooncakeTransferContractTest extends TransferBackendContract {
    /// The JDK keeps a socket and two threads from the first virtual thread that waits for a socket
    /// on.
    @BeforeAll
    static void startWhatTheJdkKeeps() {
        try (var engine = JavaTransferEngine.start(EngineConfig.defaults())) {
            engine.send(
                    engine.info().segmentName(),
                    new Notification("a", "b"),
                    Deadline.in(Duration.ofSeconds(5)));
            engine.open(engine.info().segmentName(), Deadline.in(Duration.ofSeconds(5)));
        }
    }

    @Override
    protected TransferBackendProvider provider() {
        return new MooncakeTransferProvider();
    }

    @Override
    protected Map<String, Object> options(String agent) {
        return Map.of("shared_memory", false, "stall_timeout", "5s");
    }
}
