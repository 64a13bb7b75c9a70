// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreTime;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/// Stops offloading for a while when the disk is full, broken or hangs. The state lasts until a
/// write succeeds again; in between, a try is made each time that the pause is over.
///
/// Threading: begun and ended by one thread at a time, asked by any.
final class OffloadPause {
    private static final Logger LOG = LoggerFactory.getLogger(OffloadPause.class);

    private final DiskTier disk;
    private final StoreTime time;
    private volatile boolean failing;
    private volatile long until;

    OffloadPause(DiskTier disk, StoreTime time) {
        this.disk = disk;
        this.time = time;
    }

    /// Whether nothing is to be written now.
    boolean isOn() {
        return failing && time.now() < until;
    }

    /// Whether no write has succeeded since the last pause began; that pause may be over.
    boolean isFailing() {
        return failing;
    }

    /// The disk did not do what it was asked for.
    void begin(String why) {
        if (!failing) {
            LOG.warn(
                    "{}: objects are not written to disk for now: {}; tried again every {} s",
                    disk.name(),
                    why,
                    disk.config().retryAfter().toMillis() / 1e3);
        }
        disk.paused();
        until = time.now() + StoreTime.nanos(disk.config().retryAfter());
        failing = true;
    }

    /// A write succeeded.
    void end() {
        if (failing) {
            failing = false;
            LOG.info("{}: offloading resumes", disk.name());
        }
    }
}
