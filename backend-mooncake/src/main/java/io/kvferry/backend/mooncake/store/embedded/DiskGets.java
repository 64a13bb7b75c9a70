// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.offload.Offloads;
import io.kvferry.backend.mooncake.store.embedded.offload.Promotions;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.StagedRead;

import org.jspecify.annotations.Nullable;

import java.util.ArrayDeque;

/// Reads those objects of a batch that are only on disk, several of them ahead of the one that is
/// requested next.
///
/// Waits for staging memory only while it holds none, so that readers never wait for each other.
///
/// Threading: one thread.
final class DiskGets implements AutoCloseable {
    /// Reads under way.
    private static final int DEPTH = 8;

    private final Offloads offloads;
    private final DiskTier tier;
    private final Promotions promotions;
    private final BatchState state;
    private final int size;
    private final ArrayDeque<Ahead> ahead = new ArrayDeque<>();
    private int next;
    private int code;

    /// A wait for staging memory has failed; this batch does not wait again.
    private boolean starved;

    private record Ahead(int index, StagedRead read) {}

    DiskGets(Offloads offloads, DiskTier tier, Promotions promotions, BatchState state, int size) {
        this.offloads = offloads;
        this.tier = tier;
        this.promotions = promotions;
        this.state = state;
        this.size = size;
    }

    /// The bytes of an object, read and checked; null where [#code] says why not. Called in the
    /// order of the batch, for those that have a copy on disk only.
    @Nullable StagedRead take(int index, StoredObject object) {
        while (!ahead.isEmpty() && ahead.getFirst().index < index) {
            ahead.remove().read.close(); // read ahead, but not requested in the end
        }
        readAhead(index);
        Ahead first = ahead.poll();
        if (first == null) {
            starved |= DiskTier.stagingBytes(object.size) <= tier.stagingBudget();
            code = tier.noStaging();
            return null;
        }
        boolean whole = false;
        try {
            code = finish(offloads, tier, object, state.copies[index], first.read);
            whole = code == 0;
            if (whole) {
                promotions.read(object, first.read.value());
            }
        } finally {
            if (!whole) {
                first.read.close();
            }
        }
        return whole ? first.read : null;
    }

    /// Why the last one was not read.
    int code() {
        return code;
    }

    /// Waits for a read, and drops a copy that is of no use.
    ///
    /// @return 0 or a code
    static int finish(
            Offloads offloads,
            DiskTier tier,
            StoredObject object,
            @Nullable DiskObject copy,
            StagedRead read) {
        if (copy == null) {
            throw new IllegalStateException("an object without memory and copy: " + object.key);
        }
        int rc = read.await();
        if (rc != 0 && DiskTier.isLost(rc)) {
            offloads.lost(object, copy);
        }
        return tier.result(copy, rc);
    }

    private void readAhead(int from) {
        next = Math.max(next, from);
        while (next < size && ahead.size() < DEPTH) {
            DiskObject copy = state.copies[next];
            if (copy != null && state.pinned[next] != null) {
                StagedRead read = tier.read(copy, ahead.isEmpty() && !starved);
                if (read == null) {
                    return;
                }
                keep(read);
            }
            next++;
        }
    }

    private void keep(StagedRead read) {
        boolean kept = false;
        try {
            ahead.add(new Ahead(next, read));
            kept = true;
        } finally {
            if (!kept) {
                read.close();
            }
        }
    }

    @Override
    public void close() {
        ahead.forEach(one -> one.read.close());
        ahead.clear();
    }
}
