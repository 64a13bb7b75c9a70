// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// One transfer as the engine sees it, made of the children's transfers. It ends when all of them
/// have ended. Used directly for holds; [LoadGroup] and [ItemGroup] add the handling of failed
/// loads.
class TransferGroup {
    /// A child's transfer in the group; `id` as seen outside the composite.
    record Part(int child, TransferId id, int from, int to) {}

    private final TransferId id;
    private final Map<TransferId, Part> open = new LinkedHashMap<>();

    /// Parts that the composite itself revoked, and why.
    private final Map<TransferId, Failure> withdrawn = new HashMap<>(0);

    private long bytes;
    private boolean revoked;
    private @Nullable Failure failure;

    TransferGroup(TransferId id) {
        this.id = id;
    }

    final TransferId id() {
        return id;
    }

    final void open(Part part) {
        open.put(part.id(), part);
    }

    /// Forgets a part that its child did not take.
    final void remove(Part part) {
        open.remove(part.id());
    }

    /// The parts that have not ended.
    final Collection<Part> parts() {
        return open.values();
    }

    /// Treats all unfinished parts as revoked, because no worker half will ever start them.
    final void abandon() {
        revoked = true;
        var unfinished = List.copyOf(open.values());
        open.clear();
        unfinished.forEach(this::partRevoked);
    }

    /// Whether parts are missing for which another child may be tried.
    boolean hasGaps() {
        return false;
    }

    final boolean allEnded() {
        return open.isEmpty();
    }

    /// Whether `child` has a part that has not ended.
    final boolean busy(int child) {
        return open.values().stream().anyMatch(part -> part.child() == child);
    }

    /// The engine ended the right to this transfer.
    final void revoke() {
        revoked = true;
    }

    final boolean revoked() {
        return revoked;
    }

    /// The composite revokes a part that no worker half has heard of.
    ///
    /// @return false when the engine has revoked the whole
    final boolean withdraw(Part part, Failure why) {
        return !revoked && withdrawn.put(part.id(), why) == null;
    }

    final boolean isWithdrawn(Part part) {
        return withdrawn.containsKey(part.id());
    }

    /// A part ended.
    ///
    /// @param by who brought its tokens, where the child knows better than its promise
    final void ended(Part part, Completion.Result result, List<Share> by) {
        open.remove(part.id());
        var missing = withdrawn.remove(part.id());
        if (missing != null) { // whatever the child says: it was never told to load it
            partFailed(part, new Completion.Failed(missing, List.of()));
            return;
        }
        if (!by.isEmpty()) {
            promised(part.id(), by);
        }
        switch (result) {
            case Completion.Completed(long moved) -> {
                bytes += moved;
                partCompleted(part);
            }
            case Completion.Failed failed -> partFailed(part, failed);
            case Completion.Revoked() -> partRevoked(part);
        }
    }

    /// The sources of the tokens of a part; a hold ignores them.
    void promised(TransferId part, List<Share> shares) {}

    void partCompleted(Part part) {}

    /// For a hold it makes no difference which blocks: the source is no longer needed.
    void partFailed(Part part, Completion.Failed failed) {
        fail(failed.failure());
    }

    void partRevoked(Part part) {
        revoked = true;
    }

    /// Remembers the first failure.
    final void fail(Failure first) {
        failure = failure == null ? first : failure;
    }

    /// The completion reported to the engine once all parts have ended.
    Completion outcome() {
        Completion.Result result =
                failure != null
                        ? new Completion.Failed(failure, List.of())
                        : revoked ? new Completion.Revoked() : new Completion.Completed(bytes);
        return new Completion(id, Completion.ALL_RANKS, result);
    }
}
