// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// A load, of tokens or of one encoder item, with the gaps that children left and that others may
/// fill.
abstract class GapGroup extends TransferGroup {
    static final int NOBODY = -1;

    /// Tokens, or rows of the item, that are not in place, because `child` failed to load them; it
    /// is [#NOBODY] when none was asked to.
    record Gap(int from, int to, int child, Failure failure) {}

    private final LoadMode mode;
    private List<Gap> gaps = new ArrayList<>();
    private int attempts;
    private @Nullable Deadline seekUntil;

    GapGroup(TransferId id, LoadMode mode) {
        super(id);
        this.mode = mode;
    }

    /// The load is for this request.
    abstract String requestId();

    final int nextAttempt() {
        return ++attempts;
    }

    /// Whether the load may wait for another child. False for a synchronous load, whose request
    /// runs in the same step, and for a revoked one.
    final boolean canWait() {
        return mode == LoadMode.ASYNC && !revoked();
    }

    /// By when a child must know whether it can fill a gap.
    final Deadline seekUntil(Duration limit) {
        if (seekUntil == null) {
            seekUntil = Deadline.in(limit);
        }
        return seekUntil;
    }

    static Gap whole(Part part, Failure failure) {
        return new Gap(part.from(), part.to(), part.child(), failure);
    }

    /// The gap left when a child ends a part as revoked although it was not revoked.
    static Gap givenUp(Part part) {
        return whole(
                part,
                new Failure(
                        ErrorCode.CANCELLED, "the child gave its load up without being told to"));
    }

    final void gap(Gap gap) {
        gaps.add(gap);
    }

    /// Removes and returns the gaps without an assigned child. The caller must fill each one, lose
    /// it, or put it back.
    final List<Gap> takeGaps() {
        var taken = gaps;
        gaps = new ArrayList<>();
        return taken;
    }

    @Override
    final boolean hasGaps() {
        return !gaps.isEmpty();
    }

    /// No child can load it.
    void lose(Gap gap) {
        fail(gap.failure());
    }
}
