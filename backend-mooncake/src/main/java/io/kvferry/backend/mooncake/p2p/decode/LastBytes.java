// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.te.WriteGrant.Received;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.Outbox;

import java.time.Duration;

/// When a load from a prefiller without capabilities is complete, all answers being there.
///
/// Before Mooncake 0.3.12 a prefiller calls a WRITE done when its own socket has taken the bytes,
/// and its answer overtakes them. What shows that they are here is that every byte of the blocks
/// has arrived, or that the WRITEs which came are of the kind that is acknowledged: the workers of
/// one engine run one Mooncake. Otherwise the load waits with its window open.
///
/// Threading: the decode loop.
final class LastBytes {
    static final Duration LOOK_AGAIN = Duration.ofMillis(5);

    /// A prefiller that failed or was given up may still send WRITEs that its transfer engine had
    /// begun.
    private static final Duration ACKNOWLEDGED = Duration.ofSeconds(1);

    private final MooncakeSettings settings;
    private final Outbox outbox;

    LastBytes(MooncakeSettings settings, Outbox outbox) {
        this.settings = settings;
        this.outbox = outbox;
    }

    /// Whether a load whose workers have all answered must wait for bytes; fails it when they do
    /// not come.
    boolean toCome(Fetch fetch) {
        if (isOver(fetch)) {
            return false;
        }
        return switch (fetch.received().orElse(Received.ALL)) {
            case ALL, ACKNOWLEDGED -> false;
            case BROKEN -> {
                fail(fetch, broken());
                yield false;
            }
            case PART -> {
                boolean waits = !settings.trustAnswers();
                if (waits && fetch.bytesBy(settings.transferTimeout()).passed()) {
                    fail(fetch, missing());
                    waits = false;
                }
                yield waits;
            }
        };
    }

    /// The window of a load is closed; fails it when that cut off or refused a WRITE.
    void closed(Fetch fetch) {
        if (!isOver(fetch) && fetch.received().orElse(Received.ALL) == Received.BROKEN) {
            fail(fetch, broken());
        }
    }

    /// Until when a worker that reports its part of a load as done may still write.
    Deadline end(Fetch fetch) {
        var limit = Deadline.in(settings.transferTimeout());
        boolean known =
                settings.trustAnswers()
                        || switch (fetch.received().orElse(Received.ALL)) {
                            case ALL, ACKNOWLEDGED -> true;
                            case PART, BROKEN -> false;
                        };
        return known ? Deadline.in(ACKNOWLEDGED).earlier(limit) : limit;
    }

    private static boolean isOver(Fetch fetch) {
        return fetch.failure().isPresent() || fetch.revoked() || fetch.pull().release();
    }

    private void fail(Fetch fetch, Failure why) {
        outbox.count("mooncake_num_failed_recvs");
        fetch.exposeAgain(settings.transferTimeout());
        fetch.fail(why);
    }

    private static Failure broken() {
        return new Failure(
                ErrorCode.CORRUPT,
                "a write of a prefiller without capabilities ended in the middle or was refused,"
                        + " although the prefiller reports the load as complete");
    }

    private Failure missing() {
        return new Failure(
                ErrorCode.TIMEOUT,
                "the prefiller reports the load as complete, but not all bytes arrived within "
                        + settings.transferTimeout().toMillis()
                        + " ms (option transfer_timeout); a prefiller without capabilities needs"
                        + " Mooncake 0.3.12, or the option trust_answers");
    }
}
