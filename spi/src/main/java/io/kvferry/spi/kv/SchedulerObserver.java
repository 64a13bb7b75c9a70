// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.observe.Stats;

import java.util.List;

/// A scheduler half with figures or cache events of its own. Polled once per step, after
/// `onReport`.
public interface SchedulerObserver {
    /// Since the last call.
    Stats drainStats();

    /// Since the last call.
    List<CacheEvent> drainEvents();
}
