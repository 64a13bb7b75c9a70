// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import java.util.HashMap;
import java.util.Map;

/// The connector contract where the prefiller does not know the decoder: blocks are held and
/// pulled.
class P2pNcclConnectorTckTest extends KvConnectorContract {
    @Override
    protected KvConnectorProvider provider() {
        return new P2pNcclConnectorProvider();
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
