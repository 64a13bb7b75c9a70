// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/// The steps by which something stops: each runs at once, and what it throws is a warning, so that
/// the steps behind it run too.
///
/// Threading: one thread.
public final class StopSteps {
    private static final Logger LOG = LoggerFactory.getLogger(StopSteps.class);

    private final String owner;

    /// @param owner named in warnings
    public StopSteps(String owner) {
        this.owner = owner;
    }

    public StopSteps run(String what, Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // no thread or no memory left, for example
            LOG.warn("{} could not end its {}", owner, what, e);
        }
        return this;
    }
}
