// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import org.junit.jupiter.api.Nested;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// The contract, run on the in-memory connector in each of its ways of working.
public class MemoryConnectorTckTest {
    /// The store stands for something outside of the process.
    public static boolean isMedium(String className) {
        return className.startsWith(MemoryStore.class.getName())
                || className.equals(HandOff.class.getName());
    }

    abstract static class OnMemory extends KvConnectorContract {
        private final String name = "tck-" + UUID.randomUUID();
        private Optional<MemoryStore> store = Optional.empty();

        /// Options beyond the name of the store.
        abstract Map<String, Object> more();

        @Override
        protected KvConnectorProvider provider() {
            return new MemoryConnectorProvider();
        }

        @Override
        protected Map<String, Object> options() {
            store = Optional.of(MemoryStore.open(name));
            return optionsOf(name);
        }

        private Map<String, Object> optionsOf(String storeName) {
            var options = new HashMap<String, Object>(more());
            options.put("store", storeName);
            return options;
        }

        @Override
        protected boolean handsOff() {
            return more().containsKey("hand_off");
        }

        @Override
        protected boolean damageStore() {
            store.orElseThrow().corrupt();
            return !more().containsKey("hand_off");
        }

        @Override
        protected boolean stopStore() {
            store.orElseThrow().setDown(true);
            return true;
        }

        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            var options = new HashMap<>(optionsOf(name));
            options.put("queue", transfers);
            return more().containsValue("async") ? Optional.of(options) : Optional.empty();
        }

        @Override
        protected boolean stallStore() {
            store.orElseThrow().setStalled(true);
            return true;
        }

        @Override
        protected void resumeStore() {
            store.orElseThrow().setStalled(false);
        }

        @Override
        protected boolean isSharedClass(String className) {
            return isMedium(className);
        }

        @Override
        protected boolean forgetStore() {
            store.orElseThrow().clear();
            return true;
        }

        @Override
        protected void releaseStore() {
            store.ifPresent(MemoryStore::close);
        }
    }

    @Nested
    class Async extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "async", "save", "step");
        }
    }

    @Nested
    class InMemoryOfItsOwn extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "async", "save", "lease", "memory", "connector");
        }
    }

    @Nested
    class Sync extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "sync", "save", "step");
        }
    }

    @Nested
    class Layerwise extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "layerwise", "save", "layerwise");
        }
    }

    @Nested
    class Leasing extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "async", "save", "lease");
        }
    }

    @Nested
    class HandOffByHold extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "async", "save", "none", "hand_off", "hold");
        }
    }

    @Nested
    class HandOffByLease extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "async", "save", "none", "hand_off", "lease");
        }

        @Override
        protected Optional<Map<String, Object>> optionsWithLease(Duration time) {
            var options = new HashMap<>(options());
            options.put("lease", time.toMillis() / 1e3);
            return Optional.of(options);
        }
    }

    @Nested
    class SavesAndHandsOff extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "sync", "save", "lease", "hand_off", "hold");
        }
    }

    @Nested
    class StoresOnly extends OnMemory {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "none", "save", "step");
        }
    }
}
