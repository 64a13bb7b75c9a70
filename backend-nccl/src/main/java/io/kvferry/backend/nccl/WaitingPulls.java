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
/// limit has passed. At most one per transfer, and bounded in number and in bytes, in all and of
/// each host, so that one host does not crowd the others out.
///
/// Threading: confined to the loop.
final class WaitingPulls {
    private static final int MOST = 4096;
    private static final int MOST_OF_HOST = MOST / 4;

    /// Bytes of messages; an ordinary pull has a few hundred.
    static final long MOST_BYTES = 8 << 20;

    static final long MOST_BYTES_OF_HOST = MOST_BYTES / 4;

    private final RankParts own;
    private final Duration limit;
    private final Map<String, Waiting> pulls = new HashMap<>();

    private final Map<String, Load> hosts = new HashMap<>();
    private long bytes;

    /// Who asked for what.
    ///
    /// @param bytes of the message
    record Asked(SideChannel.Asker asker, PeerMessage.Pull pull, int bytes) {}

    /// @param expiry refuses it
    private record Waiting(Asked asked, SideChannel.Timer expiry) {}

    /// What waits of one host.
    private record Load(int pulls, long bytes) {
        static final Load NONE = new Load(0, 0);

        Load plus(int more, long moreBytes) {
            return new Load(pulls + more, bytes + moreBytes);
        }
    }

    /// @param limit after which a pull is refused
    WaitingPulls(RankParts own, Duration limit) {
        this.own = own;
        this.limit = limit;
    }

    /// Keeps a pull, in the place of one that waits for the same transfer, or refuses it.
    void await(Asked asked) {
        var transfer = asked.pull.transfer().id();
        refuse(transfer, new Failure(ErrorCode.ALREADY_ACTIVE, "pulled again"));
        var host = hosts.getOrDefault(asked.asker.host(), Load.NONE).plus(1, asked.bytes);
        if (pulls.size() >= MOST
                || bytes + asked.bytes > MOST_BYTES
                || host.pulls > MOST_OF_HOST
                || host.bytes > MOST_BYTES_OF_HOST) {
            own.refuse(asked.asker, new Failure(ErrorCode.BACKPRESSURE, "too many pulls wait"));
            return;
        }
        var expiry = own.channel().after(limit, () -> own.loop().post(() -> expire(asked)));
        pulls.put(transfer, new Waiting(asked, expiry));
        hosts.put(asked.asker.host(), host);
        bytes += asked.bytes;
    }

    private void left(Asked asked) {
        bytes -= asked.bytes;
        hosts.computeIfPresent(
                asked.asker.host(),
                (_, load) -> load.pulls == 1 ? null : load.plus(-1, -asked.bytes));
    }

    /// The decoder has stopped to wait by now, by its own clock or because it is lost.
    private void expire(Asked asked) {
        var late = pulls.get(asked.pull.transfer().id());
        if (late != null && late.asked == asked) {
            pulls.remove(asked.pull.transfer().id());
            left(asked);
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
        left(waiting.asked);
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
                        left(each.asked);
                    }
                    return over;
                });
    }
}
