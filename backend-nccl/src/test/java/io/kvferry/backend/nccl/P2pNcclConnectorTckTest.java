// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// The connector contract where the prefiller does not know the decoder: blocks are held and
/// pulled.
class P2pNcclConnectorTckTest extends KvConnectorContract {
    private final GatedP2p provider = new GatedP2p();

    @Override
    protected KvConnectorProvider provider() {
        return provider;
    }

    @Override
    protected boolean stallStore() {
        provider.shut();
        return true;
    }

    @Override
    protected void resumeStore() {
        provider.open();
    }

    @Override
    protected Optional<Map<String, Object>> optionsWithBound(int loads) {
        var options = new HashMap<>(options());
        options.put("max_loads", (long) loads);
        return Optional.of(options);
    }

    @Override
    protected Map<String, Object> options() {
        var options = new HashMap<String, Object>();
        options.put("listen_port", 0L);
        options.put("send_type", "GET");
        return options;
    }

    @Override
    protected KvRole producerRole() {
        return KvRole.PRODUCER;
    }

    @Override
    protected KvRole consumerRole() {
        return KvRole.CONSUMER;
    }
}
