// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.function.Consumer;

/// What a prefiller says to the decoders that it pushes to, and knows of them, by endpoint.
///
/// Threading: confined to the loop; answers are posted to it.
final class Decoders {
    private static final Logger LOG = LoggerFactory.getLogger(Decoders.class);

    /// Pushes are held back for that many times the limit of a push.
    private static final int PENALTY = 4;

    private final RankParts own;

    /// Of those that have granted something.
    private final Remembered<String, Long> epochs = Remembered.byText();

    /// Decoders that get no pushes until then, since their last push was not accepted in time.
    private final Remembered<String, Deadline> stalled = Remembered.byText();

    Decoders(RankParts own) {
        this.own = own;
    }

    /// Offers a push.
    void offer(Source source, String endpoint, Consumer<PeerMessage> answer) {
        var known = epochs.get(endpoint);
        var offer =
                new PeerMessage.Offer(
                        new PeerMessage.Transfer(
                                source.transfer(),
                                own.epoch(),
                                known == null ? PeerMessage.ANY_EPOCH : known,
                                own.shape(),
                                source.prompt(),
                                CacheBlocks.counts(source.tails())));
        exchange(endpoint, offer, new Reply(heard -> own.loop().post(answer, heard)));
    }

    /// A push that it granted will not come: it need not wait for a sender.
    void leaveUnused(String transfer, String endpoint, Grant grant) {
        exchange(
                endpoint,
                new PeerMessage.Unused(transfer, own.epoch(), grant),
                new Reply(answer -> {
                    if (!(answer instanceof PeerMessage.Sent)) {
                        LOG.debug("{} not told that {} is unused: {}", endpoint, transfer, answer);
                    }
                }));
    }

    private void exchange(String endpoint, PeerMessage message, Reply reply) {
        var limit = own.settings().pushLimit();
        own.channel()
                .exchange(endpoint, message.encode(), limit, limit, SideChannel.Turn.SHORT, reply);
    }

    void granted(String endpoint, long epoch) {
        epochs.put(endpoint, epoch);
    }

    void refused(String endpoint, PeerMessage.Refused refusal) {
        var code = refusal.failure().code();
        if (code == ErrorCode.STALE_INCARNATION) {
            epochs.remove(endpoint); // restarted: the next offer reaches it
        } else if (code == ErrorCode.TIMEOUT) {
            tooSlow(endpoint); // the end of this wait may come before that of the step's
        }
        LOG.debug(
                "{} (epoch {}) refuses an offer: {}", endpoint, refusal.epoch(), refusal.failure());
        own.count("p2p_offers_refused");
    }

    /// It was too slow: nothing more is pushed there for a while, so that one slow decoder does not
    /// slow every step.
    void tooSlow(String endpoint) {
        stalled.put(endpoint, Deadline.in(own.settings().pushLimit().multipliedBy(PENALTY)));
    }

    boolean isStalled(String endpoint) {
        var until = stalled.get(endpoint);
        return until != null && !until.passed();
    }
}
