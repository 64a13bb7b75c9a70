// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.Share;

import java.util.ArrayList;
import java.util.List;

/// The part of a hit from sources that have not failed this request.
///
/// @param tokens in whole blocks where not all of the hit is taken
/// @param shares who is to bring them
/// @param reason why it is not all; empty when it is
record UsableHit(int tokens, List<Share> shares, String reason) {
    private static final UsableHit NOTHING = new UsableHit(0, List.of(), "");

    static UsableHit nothing(String reason) {
        return reason.isEmpty() ? NOTHING : new UsableHit(0, List.of(), reason);
    }

    /// The hit up to the first source that has broken a promise to this request.
    static UsableHit of(LookupResult.Hit hit, RequestState request, int blockTokens) {
        var kept = new ArrayList<Share>();
        int tokens = 0;
        var reason = "";
        for (var share : hit.shares()) {
            if (request.broken.contains(share.source())) {
                reason = share.source() + " broke its promise to this request before";
                break;
            }
            kept.add(share);
            tokens += share.tokens();
        }
        if (tokens < hit.tokens()) {
            int whole = tokens / blockTokens * blockTokens;
            trim(kept, tokens - whole);
            tokens = whole;
        }
        return new UsableHit(tokens, kept, reason);
    }

    /// Takes `excess` tokens off the last shares.
    private static void trim(List<Share> shares, int excess) {
        while (excess > 0) {
            var last = shares.removeLast();
            if (last.tokens() > excess) {
                shares.add(new Share(last.source(), last.tier(), last.tokens() - excess));
            }
            excess -= last.tokens();
        }
    }
}
