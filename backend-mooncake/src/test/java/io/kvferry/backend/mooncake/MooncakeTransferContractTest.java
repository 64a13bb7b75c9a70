// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
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
                    Deadline.in(Duration.ofSeconds(60)));
            engine.open(engine.info().segmentName(), Deadline.in(Duration.ofSeconds(60)));
        }
    }

    @Override
    protected TransferBackendProvider provider() {
        return new MooncakeTransferProvider();
    }

    private final List<DamagingRelay> relays = new ArrayList<>();
    private boolean relayed;

    /// The one test whose agents meet through relays.
    @BeforeEach
    void relayIfDamaged(TestInfo test) {
        relayed = test.getDisplayName().startsWith("C56 ");
    }

    @Override
    protected Map<String, Object> options(String agent) {
        var options = new HashMap<String, Object>();
        options.put("shared_memory", false);
        if (relayed && !agent.equals("static")) {
            var relay = new DamagingRelay();
            relays.add(relay);
            options.put("host", DamagingRelay.HOST);
            options.put("bind_host", DamagingRelay.BEHIND);
            options.put("min_port", relay.minPort());
            options.put("max_port", relay.maxPort());
        }
        return options;
    }

    @Override
    protected boolean damageInTransit() {
        relays.forEach(DamagingRelay::damageNext);
        return !relays.isEmpty();
    }

    @Override
    protected void release() {
        relays.forEach(DamagingRelay::close);
    }
}
