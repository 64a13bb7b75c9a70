// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.function.Consumer;

/// What a decoder says to prefillers.
///
/// Threading: any thread; answers are posted to the loop.
final class Prefillers {
    private static final Logger LOG = LoggerFactory.getLogger(Prefillers.class);
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(10);

    private final RankParts own;

    Prefillers(RankParts own) {
        this.own = own;
    }

    /// How long a pull may wait: for the prompt, and then for its blocks.
    Duration pullLimit() {
        return own.settings().receiveLimit().plus(own.settings().transferLimit());
    }

    /// Asks for the blocks of an arrival, into its window.
    ///
    /// @return false, with nothing asked, where the prefiller has no such rank
    boolean pull(Arrival arrival, Consumer<PeerMessage> answer) {
        var load = arrival.wanted();
        var prefiller = P2pScheduler.address(load.prefiller(), own.rank());
        var grant = arrival.grant;
        if (prefiller.isEmpty() || grant == null) {
            return false;
        }
        var message =
                new PeerMessage.Pull(
                        new PeerMessage.Transfer(
                                load.transfer(),
                                own.epoch(),
                                load.prefiller().epoch(),
                                own.shape(),
                                load.prompt(),
                                arrival.counts()),
                        grant,
                        own.plane().address());
        own.channel()
                .exchange(
                        prefiller.get().endpoint(),
                        message.encode(),
                        CONNECT_LIMIT,
                        pullLimit(),
                        new Reply(heard -> own.loop().post(answer, heard)));
        return true;
    }

    /// Tells the prefiller that it need not hold the transfer any more. Best effort: if the message
    /// is lost, the hold expires.
    void release(String transfer, P2pPlan.Peer prefiller) {
        P2pScheduler.address(prefiller, own.rank())
                .ifPresent(address ->
                        own.channel()
                                .exchange(
                                        address.endpoint(),
                                        new PeerMessage.Release(
                                                        transfer, own.epoch(), prefiller.epoch())
                                                .encode(),
                                        CONNECT_LIMIT,
                                        CONNECT_LIMIT,
                                        SideChannel.Turn.SHORT,
                                        new Reply(answer -> {
                                            if (!(answer instanceof PeerMessage.Sent)) {
                                                LOG.debug(
                                                        "release of {} was not heard: {}",
                                                        transfer,
                                                        answer);
                                            }
                                        })));
    }
}
