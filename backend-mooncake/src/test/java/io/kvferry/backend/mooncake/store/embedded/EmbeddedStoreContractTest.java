// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;

import org.junit.jupiter.api.Nested;

import java.time.Duration;
import java.util.Optional;

/// The contract of stores, run on the embedded one.
class EmbeddedStoreContractTest {
    abstract static class Embedded extends StoreContract {
        private Optional<SteppedStore> stepped = Optional.empty();

        abstract StoreConfig config(StoreConfig from);

        abstract void mount(EmbeddedStore store);

        @Override
        protected Store open(StoreIdentity identity) {
            if (stepped.isEmpty()) {
                var made = new SteppedStore(this::config);
                mount(made.store);
                stepped = Optional.of(made);
            }
            return stepped.get().store.client(identity);
        }

        @Override
        protected boolean pass(Duration time) {
            stepped.ifPresent(store -> store.pass(time));
            return true;
        }

        @Override
        protected void shutDown() {
            stepped.ifPresent(SteppedStore::close);
        }
    }

    @Nested
    class OneSegment extends Embedded {
        @Override
        StoreConfig config(StoreConfig from) {
            return from;
        }

        @Override
        void mount(EmbeddedStore store) {
            store.mount("a", 64 << 20);
        }
    }

    @Nested
    class SeveralSegmentsWithChecksums extends Embedded {
        @Override
        StoreConfig config(StoreConfig from) {
            return from.withChecksums(true).withLeases(Duration.ofSeconds(10), false);
        }

        @Override
        void mount(EmbeddedStore store) {
            store.mount("a", 16 << 20);
            store.mount("b", 32 << 20);
            store.mount("b", 16 << 20);
        }
    }
}
