// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.cluster.ClusterStore;
import io.kvferry.backend.mooncake.store.directory.DirectoryStore;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.backend.mooncake.store.remote.DiskOptions;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.backend.mooncake.storeconnector.keys.KeyForm;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;

/// The store that the options name, as one connector half uses it.
///
/// @param id identifies the store; equal for all halves that use the same store
/// @param staging staging memory of its disk tier, by which loads are split; null if they are not
///   split
/// @param release called after the store has been closed, to end the use of shared resources
record StoreAccess(Store store, long id, @Nullable DiskStaging staging, Runnable release)
        implements AutoCloseable {
    /// @param announces whether this half logs when the store becomes unavailable and available
    ///   again
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY] when its memory cannot be
    ///   allocated, [io.kvferry.spi.ErrorCode#BAD_CONFIG] when the options do not allow this use of
    ///   the store, [io.kvferry.spi.ErrorCode#UNAVAILABLE] when Mooncake's library is missing
    static StoreAccess open(EngineInfo engine, OptionValues options, boolean announces) {
        var choice = StoreChoice.of(options);
        var identity = BlockKeys.identity(engine, choice.tenant());
        if (choice.cluster().isPresent()) {
            var cluster = choice.cluster().get();
            boolean plain = KeyForm.of(options, engine) == KeyForm.VLLM;
            return new StoreAccess(
                    plain
                            ? ClusterStore.openPlain(
                                    cluster, new BlockKeys(engine, options).start())
                            : ClusterStore.open(cluster, identity),
                    ("mooncake://" + cluster.master()).hashCode(),
                    choice.staging().of(cluster.master()),
                    () -> {});
        }
        if (choice.directory().isPresent()) {
            var master = choice.directory().get();
            String name = RemoteStoreConfig.MASTER_AT + master.address();
            return new StoreAccess(
                    DirectoryStore.open(master, identity, announces),
                    name.hashCode(),
                    choice.staging().of(name),
                    () -> {});
        }
        if (choice.remote().isPresent()) {
            var remote = choice.remote().get();
            return new StoreAccess(
                    RemoteStore.open(remote, identity, announces),
                    remote.address().hashCode(),
                    choice.staging().of(remote.address()),
                    () -> {});
        }
        var use =
                EmbeddedStores.use(
                        options.string("store_name"),
                        options.string("segment_name"),
                        options.bytes(StoreOptions.SEGMENT_SIZE),
                        StoreOptions.store(options),
                        options.duration("linger"),
                        DiskOptions.of(options));
        long id = use.store().id();
        return new StoreAccess(
                use.store().client(identity), id, choice.staging().own(), use::close);
    }

    @Override
    public void close() {
        store.close();
        release.run();
    }
}
