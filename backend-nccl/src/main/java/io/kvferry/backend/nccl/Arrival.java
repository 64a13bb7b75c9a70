// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import java.util.Objects;

/// A transfer that this rank is receiving, or has received and not given to its load yet.
///
/// Threading: confined to the loop of its [ReceiveService].
final class Arrival {
    private final String transfer;
    private final int[] counts;
    private final PromptMark prompt;
    State state;

    /// Who wants it, where that is known.
    P2pPlan.@Nullable Load load;

    /// Where it is staged, if it was pushed before its load.
    StagedBlocks.@Nullable Lease staged;

    /// While it is being received.
    DataPlane.@Nullable Window window;

    @Nullable Grant grant;

    /// What the prefiller answered to a pull.
    @Nullable Failure refusal;

    SideChannel.Timer expiry = () -> {};

    /// Whether the refusal is the prefiller's, not the loss of it.
    boolean answered;

    /// Forgotten when it has ended.
    boolean unwanted;

    /// How many times it has been pulled.
    int pulls;

    enum State {
        STAGING,
        STAGED,
        COPYING,
        PULLING
    }

    Arrival(String transfer, State state, int[] counts, PromptMark prompt) {
        this.transfer = transfer;
        this.state = state;
        this.counts = counts;
        this.prompt = prompt;
    }

    String transfer() {
        return transfer;
    }

    /// Blocks per KV cache group, of which the window has exactly as many.
    int[] counts() {
        return counts;
    }

    PromptMark prompt() {
        return prompt;
    }

    P2pPlan.Load wanted() {
        return Objects.requireNonNull(load);
    }

    /// Whether it has all blocks that are wanted.
    boolean covers(int[] wanted) {
        return fewerOrEqual(wanted, counts);
    }

    static boolean fewerOrEqual(int[] wanted, int[] offered) {
        if (wanted.length != offered.length) {
            return false;
        }
        for (int i = 0; i < wanted.length; i++) {
            if (wanted[i] > offered[i]) {
                return false;
            }
        }
        return true;
    }
}
