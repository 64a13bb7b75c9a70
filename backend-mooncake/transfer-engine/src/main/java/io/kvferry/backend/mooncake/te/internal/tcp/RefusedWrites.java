// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.toolkit.bounded.RecentMap;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// Counts WRITEs of peers that were not applied, and logs a warning: immediately for the first one
/// from a host, then once a minute.
///
/// Most arrive too late, after their load was reported as revoked or failed. The sender may not be
/// told (version 1) or may ignore it, so this log is where they become visible.
///
/// Threading: any thread.
final class RefusedWrites {
    private static final Logger LOG = LoggerFactory.getLogger(RefusedWrites.class);
    private static final long INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);
    private static final int MOST_HOSTS = 1024;

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Host> hosts = new RecentMap<>(MOST_HOSTS);
    private long total;

    private static final class Host {
        private long warnedAt;
        private long since;
    }

    void add(String host, long address, long bytes) {
        long due = note(host, System.nanoTime());
        if (due > 0) {
            LOG.warn(
                    "refused {} writes of {} (or of others at its address) since the last such"
                            + " line, this one of {} bytes at 0x{}: they are for no open load of this engine",
                    due,
                    host,
                    bytes,
                    Long.toHexString(address));
        } else {
            LOG.debug("refused {} bytes at 0x{} of {}", bytes, Long.toHexString(address), host);
        }
    }

    /// @return how many to warn of, 0 for none
    long note(String host, long now) {
        lock.lock();
        try {
            total++;
            var known = hosts.get(host);
            if (known == null) {
                known = new Host();
                known.warnedAt = now - INTERVAL_NANOS;
                hosts.put(host, known);
            }
            known.since++;
            if (now - known.warnedAt < INTERVAL_NANOS) {
                return 0;
            }
            long due = known.since;
            known.warnedAt = now;
            known.since = 0;
            return due;
        } finally {
            lock.unlock();
        }
    }

    /// Since the start.
    long total() {
        lock.lock();
        try {
            return total;
        } finally {
            lock.unlock();
        }
    }
}
