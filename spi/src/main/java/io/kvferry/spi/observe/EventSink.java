// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

/// Takes events. Called from any thread; returns at once, never throws, drops (and counts) when it
/// cannot keep up.
@FunctionalInterface
public interface EventSink {
    /// Ignores everything.
    EventSink NONE = _ -> {};

    void emit(TraceEvent event);
}
