// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;

import java.util.ArrayList;
import java.util.List;

/// An object in a list of what a store holds.
///
/// @param bytes of the object
/// @param inMemory whether it has a copy there
/// @param onDisk whether it has one there
public record StoredKey(
        StoreIdentity identity, String key, long bytes, boolean inMemory, boolean onDisk) {
    /// Where it is: `memory`, `disk` or `memory+disk`.
    public String tiers() {
        if (inMemory) {
            return onDisk ? "memory+disk" : "memory";
        }
        return "disk";
    }

    static List<StoredKey> list(
            OwnerLink link, RemoteStoreConfig config, String tenant, String beginning, int most) {
        var question =
                StoreProtocol.question(Operation.LIST, 0, config.askLimit())
                        .string(tenant)
                        .string(beginning)
                        .i32(most);
        var answer = link.ask(question, config.askLimit());
        if (answer.code() != 0) {
            throw new KvFerryException(
                    StoreCode.of(answer.code()).error(),
                    "the store at "
                            + config.address()
                            + " does not answer ("
                            + StoreCode.text(answer.code())
                            + "); is `kvferry owner` running there, with the secret that is set here?");
        }
        WireReader in = answer.body();
        var keys = new ArrayList<StoredKey>();
        for (int n = in.i32(); n > 0; n--) {
            keys.add(
                    new StoredKey(
                            new StoreIdentity(tenant, in.string(), in.string()),
                            in.string(),
                            in.i64(),
                            in.bool(),
                            in.bool()));
        }
        return keys;
    }
}
