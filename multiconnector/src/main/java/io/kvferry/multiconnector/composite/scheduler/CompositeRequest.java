// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// State that the composite keeps for a live request.
final class CompositeRequest {
    /// The stretch of a hit that one child is to load.
    record Stretch(
            int child,
            int from,
            int to,
            LookupResult.LoadMode mode,
            List<LookupResult.Share> shares) {
        /// The part of it between two positions.
        Stretch within(int first, int last) {
            return new Stretch(
                    child, first, last, mode, LoadPlanner.cut(shares, first - from, last - first));
        }
    }

    private final RequestView whole;
    private final RequestView @Nullable [] views;

    /// Children that failed a load of this request. They are not asked again for it.
    private final boolean[] failed;

    private final LookupResult[] answers;

    /// The choice of the last lookup.
    List<Stretch> chosen = List.of();

    /// Loads of this request that have not ended.
    final List<LoadGroup> loads = new ArrayList<>(1);

    CompositeRequest(RequestView whole, RequestView @Nullable [] views, int children) {
        this.whole = whole;
        this.views = views;
        this.failed = new boolean[children];
        this.answers = new LookupResult[children];
        Arrays.fill(answers, LookupResult.MISS);
    }

    /// Notes a child's last answer, for the explanation of the choice.
    void answered(int child, LookupResult answer) {
        answers[child] = answer;
    }

    LookupResult answerOf(int child) {
        return answers[child];
    }

    RequestView whole() {
        return whole;
    }

    RequestView viewOf(int child) {
        return views == null ? whole : views[child];
    }

    /// Whether children see params of their own.
    boolean hasViews() {
        return views != null;
    }

    void exclude(int child) {
        failed[child] = true;
    }

    boolean excluded(int child) {
        return failed[child];
    }
}
