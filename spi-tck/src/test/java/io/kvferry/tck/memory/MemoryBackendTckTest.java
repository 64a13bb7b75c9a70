// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.Nested;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/// The contract, run on the in-memory backend: both threading models, and without its optional
/// features.
class MemoryBackendTckTest {
    abstract static class OnMemory extends TransferBackendContract {
        private final String fabric = "tck-" + UUID.randomUUID();

        abstract Map<String, Object> more();

        final String fabric() {
            return fabric;
        }

        @Override
        protected TransferBackendProvider provider() {
            return new MemoryBackendProvider();
        }

        @Override
        protected Map<String, Object> options(String agent) {
            var options = new HashMap<String, Object>(more());
            options.put("fabric", fabric);
            return options;
        }
    }

    @Nested
    class Concurrent extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of();
        }
    }

    @Nested
    class Confined extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("threading", "confined");
        }
    }

    @Nested
    class WithoutFeatures extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of(
                    "without",
                    List.of("NOTIFY", "CANCEL", "PER_DESCRIPTOR_RESULTS"),
                    "alignment",
                    512,
                    "max_bytes",
                    "32MiB");
        }
    }

    /// The features that the reference backend claims on demand only.
    @Nested
    class WithMoreFeatures extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of(
                    "threading",
                    "confined",
                    "with",
                    List.of("CHECKSUM", "NEEDS_TARGET_PROGRESS", "SELF_MANAGED_METADATA"));
        }

        @Override
        protected boolean damageInTransit() {
            MemoryBackendProvider.damageNext(fabric());
            return true;
        }
    }
}
