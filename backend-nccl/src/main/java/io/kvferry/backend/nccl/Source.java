// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Objects;

/// Blocks that can be sent, or are being sent: a push, which ends with its step, or a hold.
///
/// Threading: confined to the loop of its [SendService].
final class Source {
    private final String transfer;
    private final PromptMark prompt;
    private final List<int[]> tails;
    private final @Nullable PushTask push;
    private final @Nullable TransferId hold;

    /// While it is being sent.
    DataPlane.@Nullable Sending sending;

    /// Of the last window that it was sent to.
    @Nullable Grant grant;

    /// Who granted the push, which has not been pulled.
    @Nullable String granter;

    /// Who hears how it ended.
    SideChannel.@Nullable Asker asker;

    /// Whether it has heard.
    boolean answered;

    boolean askerGone;
    boolean revoked;
    boolean released;

    Source(P2pPlan.Push plan, PushTask push) {
        this.transfer = plan.transfer();
        this.prompt = plan.prompt();
        this.tails = plan.blocks();
        this.push = push;
        this.hold = null;
    }

    Source(P2pPlan.Hold plan) {
        this.transfer = plan.transfer();
        this.prompt = plan.prompt();
        this.tails = plan.blocks();
        this.push = null;
        this.hold = plan.id();
    }

    void askedBy(SideChannel.Asker other) {
        asker = other;
        answered = false;
    }

    String transfer() {
        return transfer;
    }

    PromptMark prompt() {
        return prompt;
    }

    /// Block ids per KV cache group.
    List<int[]> tails() {
        return tails;
    }

    boolean isPush() {
        return push != null;
    }

    /// The task of a push.
    PushTask push() {
        return Objects.requireNonNull(push);
    }

    /// What the engine waits for, of a hold.
    TransferId hold() {
        return Objects.requireNonNull(hold);
    }
}
