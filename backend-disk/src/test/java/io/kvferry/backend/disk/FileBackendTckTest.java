// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.Nested;

import java.util.Map;

/// The contract, run on the file backend with and without O_DIRECT.
class FileBackendTckTest {
    abstract static class OnFiles extends TransferBackendContract {
        abstract boolean direct();

        @Override
        protected TransferBackendProvider provider() {
            return new FileBackendProvider();
        }

        @Override
        protected Map<String, Object> options(String agent) {
            return Map.of("direct", direct());
        }
    }

    @Nested
    class Buffered extends OnFiles {
        @Override
        boolean direct() {
            return false;
        }
    }

    @Nested
    class Direct extends OnFiles {
        @Override
        boolean direct() {
            return true;
        }
    }
}
