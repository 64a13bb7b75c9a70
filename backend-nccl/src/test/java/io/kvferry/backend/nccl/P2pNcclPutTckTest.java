// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import org.junit.jupiter.api.Tag;

/// As [P2pNcclPushTckTest], with the model waiting for each layer.
@Tag("soak")
class P2pNcclPutTckTest extends P2pNcclPushTckTest {
    @Override
    String sendType() {
        return "PUT";
    }
}
