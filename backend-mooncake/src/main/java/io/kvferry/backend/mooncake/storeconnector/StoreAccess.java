// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.EmbeddedStores;
import io.kvferry.spi.config.OptionValues;

/// Opens the store that the options name.
final class StoreAccess {
    private StoreAccess() {}

    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY] when there is
    ///   no memory for it
    static EmbeddedStores.Use use(OptionValues options) {
        return EmbeddedStores.use(
                options.string("store_name"),
                options.string("segment_name"),
                options.bytes(StoreOptions.SEGMENT_SIZE),
                StoreOptions.store(options),
                options.duration("linger"));
    }
}
