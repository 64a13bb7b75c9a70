// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.BitSet;
import java.util.Optional;

/// The load of one encoder item: all or nothing, by one child at a time.
final class ItemGroup extends TransferGroup {
    private final EcItem item;
    private final LoadMode mode;
    private final BitSet tried = new BitSet();
    private @Nullable Failure unsettled;

    ItemGroup(TransferId id, EcItem item, LoadMode mode) {
        super(id);
        this.item = item;
        this.mode = mode;
    }

    EcItem item() {
        return item;
    }

    boolean canWait() {
        return mode == LoadMode.ASYNC && !revoked();
    }

    boolean tried(int child) {
        return tried.get(child);
    }

    void trying(int child) {
        tried.set(child);
    }

    int attempts() {
        return tried.cardinality();
    }

    /// The failure for which no other child has been looked for yet.
    Optional<Failure> takeFailure() {
        var taken = Optional.ofNullable(unsettled);
        unsettled = null;
        return taken;
    }

    void unsettled(Failure failure) {
        unsettled = failure;
    }

    @Override
    void partFailed(Part part, Completion.Failed failed) {
        unsettled = failed.failure();
    }

    @Override
    void partRevoked(Part part) {
        if (!revoked()) {
            unsettled =
                    new Failure(
                            ErrorCode.CANCELLED,
                            "the child gave its load up without being told to");
        }
    }
}
