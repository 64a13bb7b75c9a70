// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/// The clock of a master, stopped just after its start: no owner expires on a busy machine, and no
/// test waits until every owner has had the time to report itself.
public final class StandingMaster implements LongSupplier {
    private final AtomicBoolean started = new AtomicBoolean();
    private final AtomicLong now;

    /// @param age of the master once it has started
    StandingMaster(Duration age) {
        this.now = new AtomicLong(age.toNanos());
    }

    /// A master on any port whose list is called whole from the start on.
    public static StoreMaster start() {
        var settings = StoreMaster.Settings.local(0);
        return StoreMaster.start(settings, new StandingMaster(settings.ownerTtl()));
    }

    void pass(Duration time) {
        now.addAndGet(time.toNanos());
    }

    @Override
    public long getAsLong() {
        return started.getAndSet(true) ? now.get() : 0;
    }
}
