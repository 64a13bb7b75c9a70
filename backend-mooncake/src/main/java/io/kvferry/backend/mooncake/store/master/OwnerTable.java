// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.toolkit.bounded.RecentMap;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongSupplier;

/// The owners of a store. An owner that has not reported within its time to live is dropped. A
/// restarted owner replaces its previous entry at once. A forgotten owner is not listed.
///
/// Threading: any thread.
final class OwnerTable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerTable.class);
    static final int MOST_OWNERS = 1024;

    private final long ttl;
    private final LongSupplier nanos;
    private final ForgottenOwners forgotten;
    private final long started;
    private final long life = new SecureRandom().nextLong() | 1;
    private final Map<String, Entry> bySegment = new LinkedHashMap<>();

    /// Lives that said that they end. A report sent before may be read after that, on another
    /// connection.
    private final Map<ListedOwner, Boolean> left = new RecentMap<>(MOST_OWNERS);

    private long version = 1;
    private boolean whole;
    private long refused;
    private long expired;

    private record Entry(ListedOwner owner, long heard) {}

    /// The list as sent to users.
    ///
    /// @param life differs for every life of the master
    /// @param version larger after every change
    /// @param whole whether every running owner has had the time to report itself
    /// @param forgotten segments that are not listed whatever their owners report
    record Snapshot(
            long life,
            long version,
            boolean whole,
            List<ListedOwner> owners,
            Set<String> forgotten) {
        Snapshot {
            owners = List.copyOf(owners);
        }
    }

    /// @param ttl how long an owner is listed without a sign of life
    /// @param nanos a clock that only goes forward
    OwnerTable(Duration ttl, LongSupplier nanos, ForgottenOwners forgotten) {
        this.forgotten = forgotten;
        this.ttl = ttl.toNanos();
        this.nanos = nanos;
        this.started = nanos.getAsLong();
    }

    /// An owner is there, for the first time or still.
    ///
    /// @return SEGMENT_NOT_FOUND when it is forgotten; SEGMENT_ALREADY_EXISTS when a later life of
    ///   it is listed, or another owner under the same name or address, or when this life has left;
    ///   BUFFER_OVERFLOW when there are too many
    synchronized StoreCode register(ListedOwner owner) {
        expire();
        if (forgotten.refuses(owner)) {
            refused++;
            return StoreCode.SEGMENT_NOT_FOUND;
        }
        if (left.containsKey(owner)) {
            refused++;
            return StoreCode.SEGMENT_ALREADY_EXISTS;
        }
        var old =
                bySegment.values().stream().map(Entry::owner).filter(owner::takesPlaceOf).toList();
        for (ListedOwner other : old) {
            boolean same = other.epoch() == owner.epoch() && other.equals(owner);
            if (!same && other.epoch() >= owner.epoch()) {
                refused++;
                return StoreCode.SEGMENT_ALREADY_EXISTS;
            }
        }
        if (old.isEmpty() && bySegment.size() >= MOST_OWNERS) {
            refused++;
            return StoreCode.BUFFER_OVERFLOW;
        }
        if (old.size() != 1 || !old.getFirst().equals(owner)) {
            old.forEach(other -> bySegment.remove(other.segment()));
            version++;
            LOG.info(
                    old.isEmpty() ? "owner {} at {} is there" : "owner {} at {} has restarted",
                    owner.segment(),
                    owner.address());
        }
        bySegment.put(owner.segment(), new Entry(owner, nanos.getAsLong()));
        return StoreCode.OK;
    }

    /// An owner reports that it stops: this life of it is not listed again. Another owner that has
    /// replaced it stays.
    synchronized void leave(ListedOwner owner) {
        left.put(owner, true);
        Entry known = bySegment.get(owner.segment());
        if (known != null && known.owner.equals(owner)) {
            bySegment.remove(owner.segment());
            version++;
            LOG.info("owner {} has left", owner.segment());
        }
    }

    /// An operator declares an owner gone for good, so that users no longer ask it.
    ///
    /// @return BUFFER_OVERFLOW when too many owners are forgotten
    /// @throws io.kvferry.spi.KvFerryException when the entry cannot be persisted
    synchronized StoreCode forget(String segment) {
        Entry listed = bySegment.get(segment);
        if (!forgotten.forget(segment, listed == null ? 0 : listed.owner.epoch())) {
            return StoreCode.BUFFER_OVERFLOW;
        }
        bySegment.remove(segment);
        version++;
        LOG.warn("owner {} is forgotten: it will not be listed", segment);
        return StoreCode.OK;
    }

    /// An operator says that an owner may come back, with another life.
    ///
    /// @return SEGMENT_NOT_FOUND when it is not forgotten
    /// @throws io.kvferry.spi.KvFerryException when that cannot be kept
    synchronized StoreCode recall(String segment) {
        if (!forgotten.recall(segment)) {
            return StoreCode.SEGMENT_NOT_FOUND;
        }
        version++;
        LOG.info("owner {} may come back", segment);
        return StoreCode.OK;
    }

    synchronized Snapshot snapshot() {
        expire();
        return new Snapshot(
                life,
                version,
                whole,
                bySegment.values().stream().map(Entry::owner).toList(),
                forgotten.segments());
    }

    /// Takes off the list of whom nothing was heard.
    synchronized void expire() {
        long now = nanos.getAsLong();
        if (!whole && now - started >= ttl) {
            whole = true;
            version++;
        }
        for (var entries = bySegment.values().iterator(); entries.hasNext(); ) {
            Entry entry = entries.next();
            if (now - entry.heard >= ttl) {
                entries.remove();
                version++;
                expired++;
                LOG.warn("owner {} has not been heard of", entry.owner.segment());
            }
        }
    }

    /// Reports that were refused; their owners log why.
    synchronized long refused() {
        return refused;
    }

    /// Owners that went without a word.
    synchronized long expired() {
        return expired;
    }
}
