// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import java.util.Map;

/// MOONCAKE keeps the contract of transfer backends when it copies between processes.
class MooncakeCrossMemoryContractTest extends MooncakeTransferContractTest {
    @Override
    protected Map<String, Object> options(String agent) {
        return Map.of("shared_memory", true, "cross_memory", true);
    }
}
