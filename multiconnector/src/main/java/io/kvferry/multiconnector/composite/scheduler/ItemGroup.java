// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import java.util.BitSet;

/// The load of one encoder item: all or nothing, by one child at a time.
final class ItemGroup extends GapGroup {
    private final EcItem item;
    private final BitSet tried = new BitSet();

    ItemGroup(TransferId id, EcItem item, LoadMode mode) {
        super(id, mode);
        this.item = item;
    }

    EcItem item() {
        return item;
    }

    @Override
    String requestId() {
        return item.requestId();
    }

    boolean tried(int child) {
        return tried.get(child);
    }

    void trying(int child) {
        tried.set(child);
    }

    @Override
    void partFailed(Part part, Completion.Failed failed) {
        gap(whole(part, failed.failure()));
    }

    @Override
    void partRevoked(Part part) {
        if (!revoked()) {
            gap(givenUp(part));
        }
    }
}
