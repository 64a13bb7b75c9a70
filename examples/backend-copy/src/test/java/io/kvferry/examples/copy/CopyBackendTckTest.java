// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.copy;

import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import java.util.Map;

class CopyBackendTckTest extends TransferBackendContract {
    @Override
    protected TransferBackendProvider provider() {
        return new CopyBackendProvider();
    }

    @Override
    protected Map<String, Object> options(String agent) {
        return Map.of();
    }
}
