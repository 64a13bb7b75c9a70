// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/// The leases that the KV connector has on blocks, by the save they are for.
///
/// Threading: scheduler thread only.
final class Leases {
    /// Leases that a connector closes long before it reports their save are forgotten at last.
    private static final int REMEMBERED = 8192;

    private final CachePool pool;
    private final Completions completions;
    private final Telemetry telemetry;
    private final long longestNanos;
    private final LongConsumer watch;
    private final Consumer<TransferId> revoke;
    private final Map<TransferId, List<Lease>> open = new HashMap<>();

    /// Given back, and not yet reported complete to the engine: a connector closes its leases when
    /// it is shown a save's completion, which is before the engine acts on it.
    private final Map<TransferId, Boolean> closed = Completions.bounded(REMEMBERED);

    private int blocks;
    private boolean disabled;

    /// @param watch takes each deadline
    /// @param revoke takes what the workers have to be told of
    Leases(
            CachePool pool,
            Completions completions,
            Telemetry telemetry,
            long longestNanos,
            LongConsumer watch,
            Consumer<TransferId> revoke) {
        this.pool = pool;
        this.completions = completions;
        this.telemetry = telemetry;
        this.longestNanos = longestNanos;
        this.watch = watch;
        this.revoke = revoke;
    }

    /// A worker half is gone: no more leases, since nobody could end them.
    void disable() {
        disabled = true;
    }

    /// Other halves take over; nothing is open.
    void reset() {
        disabled = false;
        closed.clear();
    }

    Lease take(TransferId id, int[] ids, long deadline) {
        if (disabled) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "lease " + id + ": a worker half of the connector is gone");
        }
        for (int block : ids) {
            if (block < 0 || block >= pool.total() || pool.references(block) == 0) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "lease " + id + ": block " + block + " is not held by any request");
            }
        }
        var lease = new Lease(this, id, ids, granted(deadline));
        for (int block : ids) {
            pool.retain(block);
        }
        blocks += ids.length;
        open.computeIfAbsent(id, _ -> new ArrayList<>()).add(lease);
        return lease;
    }

    /// A deadline, or the latest that the engine grants; watched from now on.
    long granted(long deadline) {
        long latest = System.nanoTime() + longestNanos;
        long capped = deadline - latest > 0 ? latest : deadline;
        watch.accept(capped);
        return capped;
    }

    void end(Lease lease) {
        var all = open.get(lease.id());
        if (all == null || !all.remove(lease)) {
            return;
        }
        if (all.isEmpty()) {
            open.remove(lease.id());
            closed.put(lease.id(), true);
        }
        lease.ended = true;
        blocks -= lease.blocks.length;
        for (int i = lease.blocks.length - 1; i >= 0; i--) {
            pool.release(lease.blocks[i]);
        }
    }

    /// Revokes what is past its deadline.
    void expire(long now) {
        for (var lease : all()) {
            if (lease.revoked) {
                continue;
            }
            if (now - lease.deadline < 0) {
                watch.accept(lease.deadline);
                continue;
            }
            telemetry.metrics.count(Counter.LEASES_EXPIRED);
            lease.revoked = true;
            if (completions.hasEnded(lease.id())) {
                end(lease);
                continue;
            }
            telemetry.incident(
                    lease.id().subject(),
                    "lease-expired",
                    "engine",
                    lease.id() + " was not closed in time");
            revoke.accept(lease.id());
            telemetry.metrics.count(Counter.REVOCATIONS);
        }
    }

    void revokeAll() {
        for (var lease : all()) {
            if (!lease.revoked) {
                lease.revoked = true;
                revoke.accept(lease.id());
            }
        }
    }

    /// All ranks have reported the save: revoked leases under it end; the connector closes others.
    ///
    /// @return whether there are leases under this id, or were until the connector closed them
    boolean complete(TransferId id) {
        var under = open.getOrDefault(id, List.of());
        for (var lease : List.copyOf(under)) {
            if (lease.revoked) {
                end(lease);
            }
        }
        return closed.remove(id) != null || !under.isEmpty();
    }

    /// A worker half is gone: all of them end as soon as their ids are completed.
    void abandon() {
        all().forEach(lease -> lease.revoked = true);
    }

    void endAll() {
        all().forEach(this::end);
    }

    private List<Lease> all() {
        return open.values().stream().flatMap(List::stream).toList();
    }

    Set<TransferId> ids() {
        return open.keySet();
    }

    boolean isEmpty() {
        return open.isEmpty();
    }

    int blocks() {
        return blocks;
    }
}
