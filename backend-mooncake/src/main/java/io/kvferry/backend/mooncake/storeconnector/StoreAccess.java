// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

/// The store that the options name, as one half uses it.
///
/// @param id tells it from other stores; equal for all halves that use the same one
/// @param release ends the use, after the store was closed
record StoreAccess(Store store, long id, Runnable release) implements AutoCloseable {
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY] when there is no memory for it
    static StoreAccess open(EngineInfo engine, OptionValues options) {
        var use =
                EmbeddedStores.use(
                        options.string("store_name"),
                        options.string("segment_name"),
                        options.bytes(StoreOptions.SEGMENT_SIZE),
                        StoreOptions.store(options),
                        options.duration("linger"));
        return new StoreAccess(
                use.store().client(BlockKeys.identity(engine, options)),
                use.store().id(),
                use::close);
    }

    @Override
    public void close() {
        store.close();
        release.run();
    }
}
