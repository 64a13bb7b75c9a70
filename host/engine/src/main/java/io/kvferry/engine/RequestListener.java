// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.spi.kv.FinishReason;

/// Receives the progress of requests, for histograms and logs.
///
/// Threading: called on the scheduler thread and must not block. Exceptions are logged and dropped.
public interface RequestListener {
    /// Ignores everything.
    RequestListener NONE = new RequestListener() {};

    /// A request's first token came, `nanos` after its submission.
    default void firstToken(long nanos) {}

    /// A further token came, `nanos` after the one before.
    default void nextToken(long nanos) {}

    /// A step computed `tokens` positions of all requests together; not called for steps that
    /// computed nothing.
    default void step(int tokens) {}

    /// A request ended.
    ///
    /// @param reason ERROR for one that failed
    default void ended(FinishReason reason, Usage usage, Times times) {}

    /// How long a request took, in nanoseconds.
    ///
    /// @param queued from its submission to its first step, loads included
    /// @param prefill from its first step to its first token; 0 when none came
    /// @param decode from its first token to its last
    /// @param total from its submission to its end
    record Times(long queued, long prefill, long decode, long total) {}
}
