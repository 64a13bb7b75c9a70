// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.tck.ec.EcConnectorContract;

import org.junit.jupiter.api.Nested;

import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// The contract, run on the in-memory encoder-cache connector.
class MemoryEcTckTest {
    abstract static class OnMemory extends EcConnectorContract {
        private final String name = "tck-" + UUID.randomUUID();
        private Optional<MemoryStore> store = Optional.empty();

        abstract String load();

        String handOff() {
            return "none";
        }

        String memory() {
            return "engine";
        }

        @Override
        protected EcConnectorProvider provider() {
            return new MemoryEcProvider();
        }

        @Override
        protected Map<String, Object> options() {
            store = Optional.of(MemoryStore.open(name));
            return Map.of("store", name, "load", load(), "hand_off", handOff(), "memory", memory());
        }

        @Override
        protected boolean damageStore() {
            store.orElseThrow().corrupt();
            return true;
        }

        @Override
        protected boolean stopStore() {
            store.orElseThrow().setDown(true);
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
        String load() {
            return "async";
        }
    }

    @Nested
    class Sync extends OnMemory {
        @Override
        String load() {
            return "sync";
        }
    }

    @Nested
    class ProvidingMemory extends OnMemory {
        @Override
        String load() {
            return "async";
        }

        @Override
        String memory() {
            return "connector";
        }
    }

    @Nested
    class Holding extends OnMemory {
        @Override
        String load() {
            return "async";
        }

        @Override
        String handOff() {
            return "hold";
        }
    }
}
