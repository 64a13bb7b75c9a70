// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;

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

    /// Made ahead: a limit that passes needs no memory to be posted.
    private final Consumer<Asked> expire = this::expire;

    /// Who asked for what.
    ///
    /// @param bytes of the message
    record Asked(SideChannel.Asker asker, PeerMessage.Pull pull, int bytes) {}

    /// @param expiry refuses it
    private record Waiting(Asked asked, SideChannel.Timer expiry) {}

    /// What waits of one host.
    private static final class Load {
        private int pulls;
        private long bytes;
    }

    /// @param limit after which a pull is refused
    WaitingPulls(RankParts own, Duration limit) {
        this.own = own;
        this.limit = limit;
    }

    /// Queues a pull. It replaces a waiting pull of the same transfer, which is refused, and is
    /// itself refused when there is no room.
    void await(Asked asked) {
        var transfer = asked.pull.transfer().id();
        refuse(transfer, new Failure(ErrorCode.ALREADY_ACTIVE, "pulled again"));
        if (!hasRoom(asked)) {
            own.refuse(asked.asker, new Failure(ErrorCode.BACKPRESSURE, "too many pulls wait"));
            return;
        }
        var host = hosts.computeIfAbsent(asked.asker.host(), _ -> new Load());
        host.pulls++;
        host.bytes += asked.bytes;
        bytes += asked.bytes;
        boolean kept = false;
        try {
            var expiry = own.channel().after(limit, () -> own.loop().post(expire, asked));
            pulls.put(transfer, new Waiting(asked, expiry));
            kept = true;
        } finally {
            if (!kept) { // no memory
                pulls.remove(transfer);
                left(asked);
            }
        }
    }

    private boolean hasRoom(Asked asked) {
        var host = hosts.get(asked.asker.host());
        return pulls.size() < MOST
                && bytes + asked.bytes <= MOST_BYTES
                && (host == null ? 0 : host.pulls) < MOST_OF_HOST
                && (host == null ? 0 : host.bytes) + asked.bytes <= MOST_BYTES_OF_HOST;
    }

    /// It is not in the map any more. Needs no memory.
    private void left(Asked asked) {
        bytes -= asked.bytes;
        var host = hosts.get(asked.asker.host());
        if (host != null) {
            host.pulls--;
            host.bytes -= asked.bytes;
            if (host.pulls == 0) {
                hosts.remove(asked.asker.host());
            }
        }
    }

    /// Bytes of the messages of those that wait.
    long bytes() {
        return bytes;
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

    /// Removes and returns the pull that waits for this transfer, if there is one. Allocates
    /// nothing.
    @Nullable Asked take(String transfer) {
        var waiting = pulls.remove(transfer);
        if (waiting == null) {
            return null;
        }
        waiting.expiry.cancel();
        left(waiting.asked);
        return waiting.asked;
    }

    /// Refuses the pull that waits for this transfer, if there is one.
    void refuse(String transfer, Failure failure) {
        var asked = take(transfer);
        if (asked != null) {
            own.refuse(asked.asker, failure);
        }
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
