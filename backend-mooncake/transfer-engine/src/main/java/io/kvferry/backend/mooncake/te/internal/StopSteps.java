// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/// The steps by which something stops: each runs at once, and what it throws is a warning, so that
/// the steps behind it run too. They can be run again.
///
/// Threading: one thread.
public final class StopSteps {
    private static final Logger LOG = LoggerFactory.getLogger(StopSteps.class);

    private final String owner;
    private boolean whole = true;

    /// @param owner named in warnings
    public StopSteps(String owner) {
        this.owner = owner;
    }

    public StopSteps run(String what, Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // no thread or no memory left, for example
            whole &= !(e instanceof OutOfMemoryError);
            LoopReport.WARN.log(LOG, "{} could not end its {}", owner, what, e);
        }
        return this;
    }

    /// False where there was too little memory for one of them.
    public boolean isWhole() {
        return whole;
    }
}
