// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.util.function.IntConsumer;

/// One transfer: what happens to its memory when it ends.
public abstract class Transfer {
    /// What a transfer is for.
    public enum Kind {
        /// Fills memory for a request.
        LOAD("deadline"),
        /// Keeps the memory of an ended request for a reader.
        HOLD("hold-expired"),
        /// Keeps blocks for a save.
        LEASE("lease-expired");

        /// What the incident is called when its deadline passes.
        final String expired;

        Kind(String expired) {
            this.expired = expired;
        }
    }

    final TransferId id;
    final Kind kind;
    final long openedAt = System.nanoTime();
    long deadline;

    /// When it was revoked; 0 for not yet.
    long revokedAt;

    boolean unanswered;

    protected Transfer(TransferId id, Kind kind) {
        this.id = id;
        this.kind = kind;
    }

    public final TransferId id() {
        return id;
    }

    public final Deadline deadline() {
        return new Deadline(deadline);
    }

    public final boolean isRevoked() {
        return revokedAt != 0;
    }

    /// It was revoked, and a rank has not answered within the limit: its memory may never come
    /// back.
    public final boolean isUnanswered() {
        return unanswered;
    }

    /// Called when every rank has reported the transfer; its memory is no longer touched. A revoked
    /// load ends as failed.
    protected abstract void ended(Completion.Result result);

    /// Called when the workers are lost: releases what the transfer has, without continuing its
    /// request.
    protected abstract void discard();

    /// A load is still open at the end of the step that planned it.
    protected void late() {}

    /// It was revoked, and a rank has not answered within the limit.
    ///
    /// @param failure for whoever waits for it
    protected void unanswered(Failure failure) {}

    /// Whether it was opened before a time and keeps its memory, perhaps for long.
    final boolean isStale(long openedBefore) {
        return openedAt - openedBefore < 0 && (unanswered || (kind == Kind.HOLD && !isRevoked()));
    }

    /// How many blocks it keeps.
    public int blocks() {
        return 0;
    }

    /// The blocks that it keeps, each with a reference of its own.
    public void forEachBlock(IntConsumer block) {}
}
