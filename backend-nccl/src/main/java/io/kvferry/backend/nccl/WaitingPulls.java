// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// Pulls whose transfer is not there yet: their decoders hear nothing until it is, or until the
/// limit has passed. At most one per transfer, and a bounded number in all and of each host, so
/// that one host does not crowd the others out.
///
/// Threading: confined to the loop.
final class WaitingPulls {
    private static final int MOST = 4096;
    private static final int MOST_OF_HOST = MOST / 4;

    private final RankParts own;
    private final Duration limit;
    private final Map<String, Waiting> pulls = new HashMap<>();

    /// Who asked for what.
    record Asked(SideChannel.Asker asker, PeerMessage.Pull pull) {}

    /// @param expiry refuses it
    private record Waiting(Asked asked, SideChannel.Timer expiry) {}

    /// @param limit after which a pull is refused
    WaitingPulls(RankParts own, Duration limit) {
        this.own = own;
        this.limit = limit;
    }

    /// Keeps a pull, in the place of one that waits for the same transfer, or refuses it.
    void await(Asked asked) {
        var transfer = asked.pull.transfer().id();
        refuse(transfer, new Failure(ErrorCode.ALREADY_ACTIVE, "pulled again"));
        if (pulls.size() >= MOST || crowds(asked.asker.host())) {
            own.refuse(asked.asker, new Failure(ErrorCode.BACKPRESSURE, "too many pulls wait"));
            return;
        }
        var expiry = own.channel().after(limit, () -> own.loop().post(() -> expire(asked)));
        pulls.put(transfer, new Waiting(asked, expiry));
    }

    private boolean crowds(String host) {
        return pulls.size() >= MOST_OF_HOST
                && pulls.values().stream()
                                .filter(each -> each.asked.asker.host().equals(host))
                                .count()
                        >= MOST_OF_HOST;
    }

    /// The decoder has stopped to wait by now, by its own clock or because it is lost.
    private void expire(Asked asked) {
        var late = pulls.get(asked.pull.transfer().id());
        if (late != null && late.asked == asked) {
            pulls.remove(asked.pull.transfer().id());
            own.refuse(asked.asker, new Failure(ErrorCode.TIMEOUT, "no such prompt was computed"));
        }
    }

    /// The one that waits for this transfer; it waits no more.
    Optional<Asked> take(String transfer) {
        var waiting = pulls.remove(transfer);
        if (waiting == null) {
            return Optional.empty();
        }
        waiting.expiry.cancel();
        return Optional.of(waiting.asked);
    }

    /// Refuses the one that waits for this transfer, if there is one.
    void refuse(String transfer, Failure failure) {
        take(transfer).ifPresent(asked -> own.refuse(asked.asker, failure));
    }

    /// Forgets those of a connection that is over.
    void gone(SideChannel.Asker asker) {
        pulls.values()
                .removeIf(each -> {
                    boolean over = each.asked.asker == asker;
                    if (over) {
                        each.expiry.cancel();
                    }
                    return over;
                });
    }
}
