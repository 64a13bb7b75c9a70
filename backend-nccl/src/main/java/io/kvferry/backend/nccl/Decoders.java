// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Deadline;

import java.time.Duration;

/// What a prefiller knows of the decoders that it pushes to, by endpoint.
///
/// Threading: confined to the loop.
final class Decoders {
    /// Pushes are held back for that many times the limit of a push.
    private static final int PENALTY = 4;

    private final Duration penalty;

    /// Of those that have granted something.
    private final Remembered<String, Long> epochs = Remembered.byText();

    /// Until when nothing is pushed there, since the last push found no taker in time.
    private final Remembered<String, Deadline> stalled = Remembered.byText();

    Decoders(Duration pushLimit) {
        this.penalty = pushLimit.multipliedBy(PENALTY);
    }

    /// [PeerMessage#ANY_EPOCH] where it is not known.
    long epoch(String endpoint) {
        var known = epochs.get(endpoint);
        return known == null ? PeerMessage.ANY_EPOCH : known;
    }

    void granted(String endpoint, long epoch) {
        epochs.put(endpoint, epoch);
    }

    /// It was started anew: the next offer reaches it.
    void restarted(String endpoint) {
        epochs.remove(endpoint);
    }

    /// It was too slow: nothing more is pushed there for a while, so that one slow decoder does not
    /// slow every step.
    void tooSlow(String endpoint) {
        stalled.put(endpoint, Deadline.in(penalty));
    }

    boolean isStalled(String endpoint) {
        var until = stalled.get(endpoint);
        return until != null && !until.passed();
    }
}
