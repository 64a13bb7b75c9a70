// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import java.util.List;

/// The engine's schedule for one step. A live view, valid during [SchedulerConnector#buildPlan].
public interface StepView {
    /// Number of the step, as the worker halves see it.
    long number();

    /// Requests that compute tokens in this step.
    int scheduledCount();

    ScheduledRequest scheduled(int index);

    /// Ids of requests that lost their blocks in this step and will start over.
    List<String> preempted();

    /// One request of the step. The view may be reused for the next index: keep nothing.
    interface ScheduledRequest {
        RequestView request();

        /// Whether this is the first step since the request got blocks (new, resumed, or done
        /// waiting for a load).
        boolean admitted();

        /// Tokens with KV before this step.
        int computedTokens();

        /// Tokens computed in this step; their KV is in the blocks at `endStep`.
        int scheduledTokens();

        /// All blocks of the request, those of this step included.
        BlockTable blocks();
    }
}
